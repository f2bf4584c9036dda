"""Differences between operating systems and instruction sets, as functions that ask the running one."""
