"""Matcher state, and the groups that can be formed from it."""
