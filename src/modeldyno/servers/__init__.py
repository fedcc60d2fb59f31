"""Servers that we start: their processes, ports, installation and files."""
