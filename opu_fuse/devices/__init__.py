"""Machines outside this process: registers and memory that a program runs on."""
