"""Inference servers that ModelDyno starts: their processes, ports, installation and files."""
