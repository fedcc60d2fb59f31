"""Plugins for ModelDyno: each module is one, and imports `modeldyno.plugin` alone."""
