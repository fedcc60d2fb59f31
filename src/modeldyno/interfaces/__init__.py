"""The plugin protocols: one module for each kind.

A plugin is a module (or any object) with these attributes, named by an entry point of the group
``modeldyno.<kind>s``; the built-in plugins are declared in pyproject.toml in the same way. Importing a plugin
must be cheap: frameworks are listed in `requires`, and imported when the plugin is used. `modeldyno.testing`
has a conformance suite for each kind.
"""

from __future__ import annotations
