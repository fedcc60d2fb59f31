"""Loaders: scheme -> Model."""
