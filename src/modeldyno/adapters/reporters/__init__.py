"""A Result in the formats that people and programs read; each module is one format.

A reporter has a `suffix` and a `render`; most take the blocks that `modeldyno.views` lays out and do
nothing but give them a form.
"""

from __future__ import annotations
