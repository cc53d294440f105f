"""The RTL as an engine, in a child process."""
