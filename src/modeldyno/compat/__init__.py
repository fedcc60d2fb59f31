"""Interfaces of other tools, for scripts that were written for them."""
