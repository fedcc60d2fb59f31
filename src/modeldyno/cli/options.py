"""Options of what to measure and how precisely, shared by the commands that measure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from modeldyno.base.errors import RequestError
from modeldyno.base.options import (
    BYTES,
    CORES,
    COUNT,
    LIMITS,
    LOAD,
    MAX_TIME,
    PAUSE,
    PERCENTILES,
    PLAN,
    SEQUENCE,
    SHARE,
    SHARE_AND_TIME,
    STATISTIC,
)
from modeldyno.cli import defaults, quantity_callback
from modeldyno.cli.declare import load_action

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modeldyno.base.options import Option

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]
Callback = Callable[[click.Context, click.Parameter, Any], Any]


def combine_options(*options: Decorator) -> Decorator:
    """Combine decorators into one, in the order of the help."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def repeatable(flag: str, name: str, metavar: str, sentence: str) -> Decorator:
    """Return an option that may be given several times; `name` is that of its values together."""
    return click.option(flag, name, multiple=True, metavar=metavar, help=sentence)


def time_option(flag: str, default: str, sentence: str, *, old: str = "") -> Decorator:
    """Return an option that takes a time; it may have an older name, too."""
    return click.option(
        *filter(None, (flag, old)),
        default=default,
        show_default=True,
        callback=quantity_callback("s"),
        help=sentence,
    )


INPUTS = repeatable(
    "--input", "inputs", "INPUT", "Input: name=8x128:int64:0..30521, or a file: .npz .jsonl .txt"
)
BACKEND = click.option("--backend", help="What runs the model; see `modeldyno plugins`.")
BESIDE = repeatable(
    "--beside", "beside", "'MODEL WORD=VALUE ...'",
    "Another model on the same server at the same time: 'b.onnx concurrency=4 instances=2'.",
)  # fmt: skip
NAME = click.option("--name", help="Name of the model in results.")
TRUST = click.option(
    "--trust", is_flag=True, allow_from_autoenv=False,
    help="Load files that run code when loaded (in the child process).",
)  # fmt: skip
LIST_LIMIT = click.option(
    "-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="Maximum number to list."
)
CARBON = combine_options(
    click.option("--carbon", metavar="INTENSITY", help="CO2 of 1,000 inferences on such a grid: 400g/kWh."),
    click.option("--power", help="Power to assume for --carbon where none can be read, such as 65W."),
)
MODE = combine_options(
    click.option(
        "--mode", default="inference", show_default=True, type=click.Choice(defaults.MODES),
        help="Measure calls, or training steps.",
    ),
    click.option(
        "--optimizer", default="adamw", show_default=True, type=click.Choice(defaults.OPTIMIZERS),
        help="Optimizer for --mode train.",
    ),
)  # fmt: skip
EVALUATION = combine_options(
    click.option("--evaluate", metavar="NAME,...", help="Measure on labelled samples: accuracy,f1."),
    click.option(
        "--data", metavar="FILE", help="Labelled samples: test.npz[:labels]; by default those of --input."
    ),
)
"""An evaluation on labelled samples."""
FUNCTIONS = combine_options(
    click.option(
        "--pre", metavar="FUNCTION",
        help="Time a function before the model, which gets --input: file.py:clean.",
    ),
    click.option(
        "--post", metavar="FUNCTION",
        help="Time a function after it, which gets the outputs: file.py:decode.",
    ),
)  # fmt: skip
"""The functions around a model."""
TOLERANCE = click.option(
    "--tolerance", metavar="[OUTPUT=]SHARE,...",
    help="Accept outputs that are off by this share of their largest value: 1e-3, boxes=1%; it is recorded.",
)  # fmt: skip
VERIFY = click.option(
    "--verify", metavar="FUNCTION",
    help="Function that judges them instead: file.py:same gets outputs and expected ones.",
)  # fmt: skip
"""What outputs must hold beside those of the source, the baseline or the default."""


def side_inputs_option(flag: str, whose: str) -> Decorator:
    """Return the option of the inputs of one side of a comparison."""
    return click.option(flag, multiple=True, metavar="INPUT", help=f"Like --input, for the {whose} only.")


def require_option(
    sentence: str = "Such as 'latency.p99 <= 50ms'; exit 1 if broken, 5 if undecided.",
) -> Decorator:
    """Return the option ``--require`` with its aliases."""
    return click.option(
        "--require", "--sla", "--threshold", "--subject-to", "require", multiple=True, metavar="BOUND",
        help=sentence,
    )  # fmt: skip


# --- knobs -------------------------------------------------------------------------------------------

_BATCH_SIZE_KEY = "modeldyno.batch_size"


def _remember_batch_size(ctx: click.Context, _parameter: click.Parameter, value: int | None) -> None:
    ctx.meta[_BATCH_SIZE_KEY] = value


def _append_batch_size(
    ctx: click.Context, _parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    size = ctx.meta.get(_BATCH_SIZE_KEY)
    return value if size is None else (*value, f"batch_size={size}")


KNOBS = combine_options(
    click.option(
        "--set", "settings", multiple=True, metavar="KNOB=VALUE", callback=_append_batch_size,
        help="Set a knob, such as threads=2; `modeldyno plugins BACKEND` lists them.",
    ),
    click.option(
        "-b", "--batch-size", type=click.IntRange(1), metavar="N", expose_value=False, is_eager=True,
        callback=_remember_batch_size,
        help="Samples in one call; the same as --set batch_size=N.",
    ),
)  # fmt: skip
"""``--set``, and ``--batch-size`` as a shortcut for its most common knob."""


# --- options from the table --------------------------------------------------------------------------


def load_options(*, with_defaults: bool) -> Decorator:
    """Add the options of any load; without defaults where a sweep file may hold them."""
    return _table_options(LOAD, {} if with_defaults else dict.fromkeys(row.field for row in LOAD))


def plan_options(*without: str, **defaults: str) -> Decorator:
    """Add the options of the measurement plan, but for some fields, and with a command's own defaults."""
    return _table_options((row for row in PLAN if row.field not in without), defaults)


def run_time_option(default: str) -> Decorator:
    """Return ``--run-time``: `max_time` of the plan, where ``--max-time`` limits the whole command."""
    return _table_options((replace(MAX_TIME, argument="run_time"),), {"max_time": default})


def _table_options(rows: Iterable[Option], defaults: dict[str, Any]) -> Decorator:
    return combine_options(*(_option(row, defaults.get(row.field, row.default)) for row in rows))


def _option(row: Option, default: str | int | None) -> Decorator:
    if default is None:
        note = "" if row.default is None else f"; {row.default} by default"
        return click.option(row.flag, row.name, help=f"{row.help[:-1]}{note}.", **_reading(row))
    return click.option(
        row.flag, row.name, default=default, show_default=True, help=row.help, **_reading(row)
    )


def _reading(row: Option) -> dict[str, Any]:
    """Return how click reads the text of an option."""
    if row.kind == COUNT:
        return {"type": click.IntRange(0 if row.zero else 1)}
    if row.kind == PERCENTILES:
        return {"multiple": True, "callback": _parsed_by("parse_percentiles")}
    below = 1.0 if row.kind == SHARE else float("inf")
    return {"callback": _CALLBACKS.get(row.kind) or quantity_callback(row.kind, zero=row.zero, below=below)}


def _parsed_by(function: str) -> Callback:
    """Return what reads a value by a function that `modeldyno.cli.actions.options` has."""
    return lambda _ctx, _parameter, value: load_action(f"options.{function}")(value)


_LEAST_MEMORY = 64 * 2**20
"""Bytes that a child process needs at least."""


def _parse_memory(ctx: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    number: int | None = quantity_callback(BYTES)(ctx, parameter, value)
    if number is not None and number < _LEAST_MEMORY:
        bare = str(value).strip().isdecimal()
        hint = f"it was read as bytes; write {value}GiB" if bare else "a child process needs at least 64 MiB"
        raise RequestError(f"{parameter.opts[0]} {value} is too little: {hint}.")
    return number


_CALLBACKS: dict[str, Callback] = {
    CORES: _parsed_by("parse_cores"),
    STATISTIC: _parsed_by("canonical_statistic"),
    BYTES: _parse_memory,
    SEQUENCE: _parsed_by("parse_sequence"),
    PAUSE: _parsed_by("parse_think_time"),
    SHARE_AND_TIME: _parsed_by("parse_cancellation"),
}


REPLAY = combine_options(
    click.option(
        "--replay", metavar="FILE", type=click.Path(dir_okay=False),
        help="Replay the requests of a trace at their times.",
    ),
    click.option(
        "--replay-speed", metavar="TIMES", type=click.FloatRange(0, min_open=True),
        help="How many times as fast as recorded to replay; 1 by default.",
    ),
    click.option(
        "--replay-window", metavar="SECONDS", callback=quantity_callback("s"),
        help="Replay the first part of the trace only, such as 10m.",
    ),
)  # fmt: skip
"""Which trace is replayed, how fast, and how much of it."""

CHILD_LIMITS = _table_options(LIMITS, {})
"""The options that limit a child process."""
