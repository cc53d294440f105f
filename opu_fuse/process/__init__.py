"""The command as a process: starting quickly, Ctrl-C, files that appear whole or not at all, work
without the garbage collector, libraries that may crash in a child.
"""
