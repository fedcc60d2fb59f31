"""Defaults and choices that the help shows, as literals: those who own them are slow to import.

``tests/cli/test_start_up.py`` compares each with its owner.
"""

from __future__ import annotations

MODES = ("inference", "train")
OPTIMIZERS = ("adamw", "adam", "sgd", "sgd-momentum", "adafactor", "adagrad", "none")
SERVER_MODES = ("online", "offline")
RANKS = ("best-load", "each-load")
MODULE_ORDERS = ("order", "macs", "parameters", "flops", "weight_bytes", "bytes")
SCHEMAS = ("result", "sweep", "job")
JOB_COMMANDS = (
    "inspect", "profile", "explain", "devices", "load", "serve", "sweep", "advise", "convert", "optimize",
    "compare", "check", "comment", "doctor", "trend", "verify", "list", "show", "report", "tag", "rm",
    "prune", "export", "import", "reconcile", "worker", "ui",
)  # fmt: skip
"""Commands that a job file can be of."""

NEVER_IN_FILES = ("--trust",)
"""Options that neither a file nor the environment may set: running code must be allowed each time."""

FEWEST_ROUNDS, MOST_ROUNDS = 5, 20
"""Of a comparison."""
KEPT_OF_NAME = 10
INSPECT_TIME = "10m"
EXPLAIN_ROUNDS, EXPLAIN_TIME, EXPLAIN_CONCURRENCY = 3, "2m", 4
EXPLAINED = ("mean", "p50")
"""Statistics of a latency that can be explained."""
TOLERANCE = "1%"
"""Of the outputs, when optimizations are tried."""
LONGEST_TREND = 1000
