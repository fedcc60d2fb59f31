"""Samplers: side processes that watch from outside."""
