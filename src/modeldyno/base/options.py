"""The options of a load and of a measurement plan: one row declares one everywhere.

From a row come the option of the command line and its help, the key of a sweep file and its JSON Schema, how
a text is read, and the words of the command that measures again. This module imports nothing of the package,
so that ``--help`` is quick; a test holds the rows against `Load`, `Plan` and the functions of the Python API.
"""

from __future__ import annotations

from dataclasses import dataclass

SECONDS, BYTES, SHARE = "s", "B", "1"
"""Kinds of options that are quantities: their base units, as `base.stats.units` has them."""
COUNT, CORES, STATISTIC, PERCENTILES, SEQUENCE = "count", "cores", "statistic", "percentiles", "sequence"
PAUSE, SHARE_AND_TIME = "pause", "share and time"


@dataclass(frozen=True, slots=True)
class Option:
    """A field of a Load or a Plan, as users give it."""

    field: str
    kind: str
    help: str
    in_file: str = ""
    """Its description in the schema of a sweep file; empty: a sweep does not take it."""
    default: str | int | None = None
    """As the help shows it; None: nothing is set."""
    zero: bool = False
    """Whether 0 is allowed; nothing below 0 is."""
    argument: str = ""
    """Its name in Python and on the command line, where the field has another."""

    @property
    def name(self) -> str:
        """Its name as an argument."""
        return self.argument or self.field

    @property
    def flag(self) -> str:
        """Its name as a flag; one that is given once for each value is in the singular."""
        name = self.name.removesuffix("s") if self.kind == PERCENTILES else self.name
        return f"--{name.replace('_', '-')}"


LOAD = (
    Option("duration", SECONDS, "Length of the steady window, such as 30s.",
           in_file="Length of the steady window; by default until the plan is met."),
    Option("requests", COUNT, "Requests to measure, after the warm-up.", in_file="Requests to measure."),
    Option("ramp", SECONDS, "Ramp-up time to the full load.", default="0s", zero=True,
           in_file="Time over which to grow to the full load."),
    Option("timeout", SECONDS, "Timeout of a request.", default="60s", argument="request_timeout",
           in_file="Seconds after which a request is given up; 60s by default."),
    Option("retries", COUNT, "Retries of a request that was refused, rejected, or lost before any answer.",
           default=0, zero=True,
           in_file="How often to resend a request that was refused, rejected, or lost before any answer."),
    Option("drivers", COUNT, "Number of processes that send.", default=1,
           in_file="Number of sending processes."),
    Option("calibration", SECONDS, "Time for the client's own error after streamed answers; 0: none.",
           default="1s", zero=True,
           in_file="Time for the client's own error after streamed answers; 1s by default, 0: none."),
    Option("sequence", SEQUENCE, "Requests of each sequence, or turns of each chat: 20, 10..30, or data.",
           in_file="Requests of each sequence, or turns of each chat: 20, 10..30, or data for its streams."),
    Option("think_time", PAUSE, "Pause of a sequence before its next request: 2s, 2s~0.5s or 1s..3s.",
           in_file="Pause of a sequence between an answer and its next request: 2s, 2s~0.5s or 1s..3s."),
    Option("prefill_concurrency", COUNT, "Most requests at once that wait for their first token.",
           in_file="Most requests at once whose streamed answers have not begun; further ones wait."),
    Option("cancel", SHARE_AND_TIME, "Give up a share of the requests so long after sending: 5%:0.5s.",
           in_file="Share of the requests that the client gives up, and how long after sending: 5%:0.5s."),
)  # fmt: skip
"""Options of any load; when requests are due (concurrency, rate, replay) each command asks in its own way."""

MAX_TIME = Option(
    "max_time", SECONDS, "Maximum measuring time per probe and process.", default="20s",
    in_file="Longest measuring time of a trial; 10s by default, at most 1.2s while searching.",
)  # fmt: skip
LIMITS = (
    Option("timeout", SECONDS, "Time limit of a child process, such as 10m.",
           in_file="Longest run time of a child process."),
    Option("memory_limit", BYTES, "Memory limit of a child process, such as 2GiB.",
           in_file="Memory limit of a child process, such as 2GiB."),
)  # fmt: skip
PLAN = (
    MAX_TIME,
    Option("min_time", SECONDS, "Minimum measuring time after warm-up.", default="1s", zero=True,
           in_file="Shortest steady measuring; 1s by default."),
    Option("processes", COUNT, "Number of fresh processes: 1 for a quick look, 5 for a reliable result.",
           default=1),
    Option("percentiles", PERCENTILES, "Measure until this percentile is certified, such as p99."),
    Option("precision", SHARE, "Relative half-width of that interval to reach.", default="2%",
           in_file="Half-width of that interval; 2% by default."),
    Option("target", STATISTIC, "Statistic whose confidence interval --precision limits.", default="p50",
           in_file="Statistic whose confidence interval must be narrow, such as p50."),
    Option("min_runs", COUNT, "Minimum number of samples after warm-up.", default=20,
           in_file="Fewest steady samples."),
    Option("max_runs", COUNT, "Maximum number of samples after warm-up.", default=1_000_000,
           in_file="Most steady samples."),
    Option("min_warmup", COUNT, "Minimum number of warm-up samples.", default=0, zero=True,
           in_file="Fewest samples discarded as warm-up."),
    Option("seed", COUNT, "Seed of random inputs and weights.", default=0, zero=True,
           in_file="Seed of random inputs, and of the search."),
    Option("pin", CORES, "CPU cores to run on, such as 0,1 or 0-3.",
           in_file="Cores to pin to, such as 0,1 or 0-3."),
    *LIMITS,
)  # fmt: skip
"""Options of how long and how precisely to measure, in the order of the help."""
