"""Options of what to measure and how precisely, shared by the commands that measure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from modeldyno.cli import actions, defaults, quantity_callback

Command = Callable[..., Any]
Option = Callable[[Command], Command]

INPUTS = click.option(
    "--input", "inputs", multiple=True, metavar="INPUT",
    help="Input: name=8x128:int64:0..30521, or a file: .npz .jsonl .txt",
)  # fmt: skip


def side_inputs_option(flag: str, whose: str) -> Option:
    """Return the option of the inputs of one side of a comparison."""
    return click.option(flag, multiple=True, metavar="INPUT", help=f"Like --input, for the {whose} only.")


PERCENTILES = click.option(
    "--percentile",
    "percentiles",
    multiple=True,
    help="Measure until this percentile is certified, such as p99.",
)
BESIDE = click.option(
    "--beside", multiple=True, metavar="'MODEL WORD=VALUE ...'",
    help="Another model on the same server at the same time: 'b.onnx concurrency=4 instances=2'.",
)  # fmt: skip
NAME = click.option("--name", help="Name of the model in results.")
TRUST = click.option(
    "--trust", is_flag=True, allow_from_autoenv=False,
    help="Load files that run code when loaded (in the child process).",
)  # fmt: skip


_POSITIVE, _NON_NEGATIVE = click.IntRange(1), click.IntRange(0)


def require_option(
    sentence: str = "Such as 'latency.p99 <= 50ms'; exit 1 if broken, 5 if undecided.",
) -> Option:
    """Return the option ``--require`` with its aliases."""
    return click.option(
        "--require", "--sla", "--threshold", "--subject-to", "require", multiple=True, metavar="BOUND",
        help=sentence,
    )  # fmt: skip


def _parse_cores(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[int, ...]:
    return actions.options.parse_cores(value or "")


def _parse_statistic(_ctx: click.Context, _parameter: click.Parameter, value: str) -> str:
    return actions.options.parse_statistic(value)


def _option(flag: str, default: Any, sentence: str, **more: Any) -> Option:
    return click.option(flag, default=default, show_default=default is not None, help=sentence, **more)


def knob_options(command: Command) -> Command:
    """Add ``--set``, and ``--batch-size`` as a shortcut for its most common knob."""
    return combine_options(
        click.option(
            "--set", "settings", multiple=True, metavar="KNOB=VALUE", callback=_append_batch_size,
            help="Set a knob, such as threads=2; `modeldyno plugins BACKEND` lists them.",
        ),
        click.option(
            "-b", "--batch-size", type=_POSITIVE, metavar="N", expose_value=False, is_eager=True,
            callback=_remember_batch_size,
            help="Samples in one call; the same as --set batch_size=N.",
        ),
    )(command)  # fmt: skip


_BATCH_SIZE_KEY = "modeldyno.batch_size"


def _remember_batch_size(ctx: click.Context, _parameter: click.Parameter, value: int | None) -> None:
    ctx.meta[_BATCH_SIZE_KEY] = value


def _append_batch_size(
    ctx: click.Context, _parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    size = ctx.meta.get(_BATCH_SIZE_KEY)
    return value if size is None else (*value, f"batch_size={size}")


def plan_options(command: Command) -> Command:
    """Add the options of the measurement plan."""
    return combine_options(
        _option(
            "--max-time",
            "20s",
            "Maximum measuring time per probe and process.",
            callback=quantity_callback("s"),
        ),
        precision_options(min_time="1s", precision="2%"),
        _option(
            "--processes",
            1,
            "Number of fresh processes: 1 for a quick look, 5 for a reliable result.",
            type=_POSITIVE,
        ),
        seed_and_pin_options,
    )(command)


def precision_options(*, min_time: str, precision: str) -> Option:
    """Add the options of sample counts, warm-up and precision, with these defaults."""
    return combine_options(
        _option(
            "--min-time",
            min_time,
            "Minimum measuring time after warm-up.",
            callback=quantity_callback("s", zero=True),
        ),
        _option(
            "--min-runs",
            defaults.MIN_RUNS,
            "Minimum number of samples after warm-up.",
            type=_POSITIVE,
        ),
        _option(
            "--max-runs",
            defaults.MAX_RUNS,
            "Maximum number of samples after warm-up.",
            type=_POSITIVE,
        ),
        _option(
            "--min-warmup",
            defaults.MIN_WARMUP,
            "Minimum number of warm-up samples.",
            type=_NON_NEGATIVE,
        ),
        _option(
            "--target",
            defaults.TARGET,
            "Statistic whose confidence interval --precision limits.",
            callback=_parse_statistic,
        ),
        _option(
            "--precision",
            precision,
            "Relative half-width of that interval to reach.",
            callback=quantity_callback("1", below=1.0),
        ),
    )


def seed_and_pin_options(command: Command) -> Command:
    """Add ``--seed`` and ``--pin``."""
    return combine_options(
        _option("--seed", 0, "Seed of random inputs and weights.", type=_NON_NEGATIVE),
        _option("--pin", None, "CPU cores to run on, such as 0,1 or 0-3.", callback=_parse_cores),
    )(command)


def combine_options(*options: Option) -> Option:
    """Combine decorators into one, in the order of the help."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add
