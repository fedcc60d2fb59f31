"""Whether the verdicts that people act on are true, tried at each door by the documented command.

`tests.proofs.cells` is the table: a claim at a door, the command that a user types, how often it is tried and
what must come. ``make proofs`` tries the cells, goes on where it stopped, and writes
``docs/explanation/proofs.md``. The default suite runs the quick test that each cell names.
"""
