"""Samplers: side processes that measure from outside."""
