"""Importers read the results of other load generators; each module is one tool.

An importer tells whether a file is from its tool, and reads it: requests if the file has them, otherwise
statistics, with a doubt for each definition that differs from ModelDyno's. The formats were checked against
the tools' sources; real files are among the tests.
"""

from __future__ import annotations
