"""Options that say what to measure, and how carefully; shared by the commands that measure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from modeldyno.cli import quantity
from modeldyno.core.metrics.measurement_plan import Plan
from modeldyno.core.metrics.metric import canonical_statistic
from modeldyno.errors import RequestError
from modeldyno.profiling import request

if TYPE_CHECKING:
    from collections.abc import Mapping

Command = Callable[..., Any]
Option = Callable[[Command], Command]
_PLAN = {field.name: field.default for field in fields(Plan)}

INPUTS = click.option(
    "--input", "inputs", multiple=True, metavar="INPUT",
    help="name=8x128:int64:0..30521, or a file: .npz .jsonl .txt",
)  # fmt: skip


def own_inputs(flag: str, whose: str) -> Option:
    """Give the option of inputs that one side of a comparison alone is given."""
    return click.option(flag, multiple=True, metavar="INPUT", help=f"Likewise, of the {whose} alone.")


PERCENTILES = click.option(
    "--percentile", "percentiles", multiple=True, help="Measure until it is certified, such as p99."
)
BESIDE = click.option(
    "--beside", multiple=True, metavar="'MODEL WORD=VALUE ...'",
    help="Another model on the same server at the same time: 'b.onnx concurrency=4 instances=2'.",
)  # fmt: skip
NAME = click.option("--name", help="What to call the model.")
TRUST = click.option(
    "--trust", is_flag=True, allow_from_autoenv=False,
    help="Load files that run code when loaded (in the child).",
)  # fmt: skip


_SOME, _ANY = click.IntRange(1), click.IntRange(0)


def bounds(sentence: str = "Such as 'latency.p99 <= 50ms'; exit 1 when broken, 5 when undecided.") -> Option:
    """Give the option of bounds, in all its spellings."""
    return click.option(
        "--require", "--sla", "--threshold", "--subject-to", "require", multiple=True, metavar="BOUND",
        help=sentence,
    )  # fmt: skip


def _cores(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[int, ...]:
    return request.cores(value or "")


def _statistic(_ctx: click.Context, _parameter: click.Parameter, value: str) -> str:
    return canonical_statistic(value)


def _option(flag: str, default: Any, sentence: str, **more: Any) -> Option:
    return click.option(flag, default=default, show_default=default is not None, help=sentence, **more)


def knob_options(command: Command) -> Command:
    """Add ``--set``, and ``--batch-size``, which sets the knob that everybody sets."""
    return together(
        click.option(
            "--set", "settings", multiple=True, metavar="KNOB=VALUE", callback=_with_batch,
            help="Set a knob, such as threads=2; `modeldyno plugins BACKEND` lists them.",
        ),
        click.option(
            "-b", "--batch-size", type=_SOME, metavar="N", expose_value=False, is_eager=True, callback=_batch,
            help="Samples in one call; the same as --set batch_size=N.",
        ),
    )(command)  # fmt: skip


_BATCH = "modeldyno.batch_size"


def _batch(ctx: click.Context, _parameter: click.Parameter, value: int | None) -> None:
    ctx.meta[_BATCH] = value


def _with_batch(ctx: click.Context, _parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    size = ctx.meta.get(_BATCH)
    return value if size is None else (*value, f"batch_size={size}")


def plan_options(command: Command) -> Command:
    """Add the options that say how carefully to measure."""
    return together(
        _option("--max-time", "20s", "Longest measuring per probe and process.", callback=quantity("s")),
        care_options(min_time="1s", precision="2%"),
        _option("--processes", 1, "Fresh processes: 1 for a look, 5 for a claim.", type=_SOME),
        place_options,
    )(command)


def care_options(*, min_time: str, precision: str) -> Option:
    """Give the options of a Plan but for its time and its processes, with these defaults."""
    return together(
        _option("--min-time", min_time, "Shortest steady measuring.", callback=quantity("s", zero=True)),
        _option("--min-runs", _PLAN["min_runs"], "Fewest steady samples.", type=_SOME),
        _option("--max-runs", _PLAN["max_runs"], "Most steady samples.", type=_SOME),
        _option("--min-warmup", _PLAN["min_warmup"], "Fewest samples left out as warm-up.", type=_ANY),
        _option(
            "--target", _PLAN["target"], "Statistic whose interval is to be narrow.", callback=_statistic
        ),
        _option("--precision", precision, "Half-width of that interval.", callback=quantity("1", below=1.0)),
    )


def place_options(command: Command) -> Command:
    """Add the options of what is random, and of the cores to stay on."""
    return together(
        _option("--seed", 0, "Seed of random inputs and weights.", type=_ANY),
        _option("--pin", None, "Cores to stay on, such as 0,1 or 0-3.", callback=_cores),
    )(command)


def together(*options: Option) -> Option:
    """Make one decorator of several, in the order of the help."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def plan_of(options: Mapping[str, Any]) -> Plan:
    """Read the options of a Plan.

    Raises:
        RequestError: it cannot be carried out.
    """
    check_order(options, "min_runs", "max_runs")
    try:
        return Plan(**{name: options[name] for name in _PLAN if options.get(name) is not None})
    except ValueError as error:
        field, told, why = str(error).partition(" is ")
        option = f"--{field.replace('_', '-')}: it is " if told and field in _PLAN else f"{field}{told}"
        raise RequestError(f"{option}{why}.") from None


def check_order(options: Mapping[str, Any], fewest: str, most: str) -> None:
    """Refuse a fewest that is above the most, where somebody asked for it: a default gives way.

    Raises:
        RequestError: it is.
    """
    ctx = click.get_current_context(silent=True)
    asked = ctx is not None and ctx.get_parameter_source(fewest) is not ParameterSource.DEFAULT
    if asked and options[fewest] > options[most]:
        low, high = (f"--{name.replace('_', '-')} {options[name]}" for name in (fewest, most))
        raise RequestError(f"{low} is more than {high}; lower the one, or raise the other.")


def probes(given: tuple[str, ...]) -> tuple[str, ...]:
    """Read names of probes, separated by commas."""
    return tuple(dict.fromkeys(name.strip() for each in given for name in each.split(",")))
