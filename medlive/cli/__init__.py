"""The command line: one file or folder for each group of commands.

It prints what `service` and the stages return.
"""
