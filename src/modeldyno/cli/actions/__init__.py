"""What the commands do, one module a command; `cli.declare.load_action` imports each when it is first used.

An action takes the options by their names, and returns the exit code, or None for 0. No action imports a
declaration.
"""
