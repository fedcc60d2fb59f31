"""The help of the commands: the most-used options or all of them in groups, and examples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from modeldyno.base.options import LIMITS, LOAD, PLAN

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

EXAMPLES: dict[str, tuple[str, str]] = {
    "inspect": (
        "modeldyno inspect model.onnx --vary batch=1..64",
        "modeldyno inspect net.py:make --mode train",
    ),
    "profile": (
        "modeldyno profile model.onnx -b 8 --input data.npz -o report.html",
        "modeldyno profile net.py:make --input x=8x3x224x224 --probe latency,layers",
    ),
    "load": (
        "modeldyno load model.onnx -c 8 --duration 10s",
        "modeldyno load http://127.0.0.1:8000#model --rate 100:poisson --require 'latency.p99 <= 50ms'",
    ),
    "optimize": (
        "modeldyno optimize net.py:make --to onnx,openvino -o best.zip",
        "modeldyno optimize model.onnx --int8 --prefer 'throughput if latency.p99 <= 10ms'",
    ),
    "sweep": (
        "modeldyno sweep model.onnx --space batch_size=1,2,4,8 --require 'latency.p99 <= 50ms'",
        "modeldyno sweep --resume STUDY --max-time 10m",
    ),
    "compare": (
        "modeldyno compare old.onnx new.onnx --quick",
        "modeldyno compare model.onnx model.onnx --candidate-set threads=1",
    ),
    "advise": (
        "modeldyno advise model.onnx --max-time 5m",
        "modeldyno advise net.py:make -b 8 --metric latency.p50",
    ),
    "check": (
        "modeldyno check result.json --require 'latency.p95 <= 100ms'",
        "modeldyno check result.json --baseline baseline.json --max-regression 5%",
    ),
    "reconcile": (
        "modeldyno reconcile result.json mlperf_log_summary.txt",
        "modeldyno reconcile TAG benchmarks.json",
    ),
    "verify": ("modeldyno verify result.json", "modeldyno verify TAG --json -"),
    "show": ("modeldyno show result.json", "modeldyno show result.json --get latency.p99"),
    "report": (
        "modeldyno report result.json -o report.html",
        "modeldyno report TAG -o latency.svg --chart latency",
    ),
    "trend": ("modeldyno trend MODEL", "modeldyno trend MODEL --metric latency.p99 -o trend.html"),
    "list": ("modeldyno list", "modeldyno list --where 'latency.p99 < 20ms and framework = onnx'"),
    "doctor": ("modeldyno doctor model.onnx", "modeldyno doctor model.onnx --budget 2m"),
    "plugins": ("modeldyno plugins probes", "modeldyno plugins onnxruntime"),
}
"""Command to two example command lines."""

FIRST: dict[str, tuple[str, ...]] = {
    "inspect": (
        "--input", "--batch-size", "--mode", "--vary", "--device", "--memory", "--depth", "--sort",
        "--compare", "--json", "--output", "--verbose",
    ),
    "profile": (
        "--input", "--batch-size", "--set", "--backend", "--probe", "--max-time", "--processes", "--require",
        "--output", "--json", "--tag", "--quiet",
    ),
    "load": (
        "--input", "--concurrency", "--rate", "--duration", "--requests", "--find-load", "--set", "--backend",
        "--require", "--output", "--json", "--quiet",
    ),
    "sweep": (
        "--space", "--maximize", "--minimize", "--require", "--input", "--set", "--backend", "--max-time",
        "--resume", "--export-configs", "--output", "--quiet",
    ),
    "compare": (
        "--quick", "--input", "--set", "--baseline-set", "--candidate-set", "--metric", "--smallest",
        "--max-time", "--fail-on", "--output", "--json", "--quiet",
    ),
    "advise": (
        "--input", "--batch-size", "--set", "--backend", "--metric", "--max-time", "--tolerance",
        "--findings-only", "--name", "--trust", "--json", "--quiet",
    ),
}  # fmt: skip
"""Command to the twelve options that ``--help`` shows; other commands have few options, and show all."""

_PROCESS = ("--pin", *(row.flag for row in LIMITS), "--inline")
GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Model and inputs", (
        "--model-path", "--input", "--baseline-input", "--candidate-input", "--batch-size", "--set",
        "--baseline-set", "--candidate-set", "--backend", "--mode", "--optimizer", "--beside", "--name",
        "--trust", "--header",
    )),
    ("What is measured", (
        "--probe", "--pre", "--post", "--layers", "--prompt", "--generate", "--trace", "--outputs",
        "--records", "--vary", "--device", "--memory", "--compare", "--metric", "--evaluate", "--data",
        "--tolerance", "--verify",
    )),
    ("Load", (
        "--concurrency", "--rate", "--replay", "--replay-speed", "--replay-window",
        *(row.flag for row in LOAD), "--find-load", "--most", "--measurements",
        "--demand", "--price", "--carbon", "--power",
    )),
    ("Search", (
        "--space", "--objective", "--maximize", "--minimize", "--latency-budget", "--min-throughput",
        "--rank", "--strategy", "--max-trials", "--curves", "--bisect", "--until", "--dry-run", "--resume",
        "--reuse", "--rerank", "--export-configs", "--overwrite", "--top", "--also", "--top-models",
        "--from-model-analyzer", "--trial-time", "--findings-only",
    )),
    ("Bounds and baselines", (
        "--require", "--baseline", "--max-regression", "--smallest", "--force", "--fail-on", "--budget",
        "--undecided", "--save-as-baseline", "--junit", "--sarif", "--markdown", "--github",
    )),
    ("Time and precision", (
        *(row.flag for row in PLAN if row.flag not in _PROCESS), "--run-time", "--quick", "--min-rounds",
        "--max-rounds", "--block", "--run", "--no-why",
    )),
    ("Process", _PROCESS),
    ("Output and storage", (
        "--output", "--json", "--output-dir", "--tag", "--no-store", "--quiet", "--verbose", "--all",
        "--depth", "--sort", "--filter", "--table",
    )),
)  # fmt: skip
"""Titles and options of the groups in ``--help-all``."""
_ALL = "modeldyno.help_all"


class HelpCommand(click.Command):
    """A click command whose help shows the most-used options first."""

    def __init__(self, *args: object, **settings: object) -> None:
        """Take the arguments of click.Command; add ``--help-all`` where there are many options."""
        super().__init__(*args, **settings)  # type: ignore[arg-type]
        if self.name in FIRST:
            self.params.append(
                click.Option(
                    ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_show_all,
                    help="Show all options and exit.",
                )
            )  # fmt: skip

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the most-used options, or all of them in groups."""
        options = {_flag(parameter): parameter for parameter in self.get_params(ctx) if _flag(parameter)}
        first = FIRST.get(self.name or "")
        if first is None:
            super().format_options(ctx, formatter)
            return
        last = ("--help-all", "--help")
        if not ctx.meta.get(_ALL):
            title = f"Main options (all {len(options)}: modeldyno {self.name} --help-all)"
            _write_section(title, [options[flag] for flag in (*first, *last)], ctx, formatter)
            return
        listed = set(last)
        for title, flags in GROUPS:
            _write_section(title, [options[flag] for flag in flags if flag in options], ctx, formatter)
            listed |= set(flags)
        others = [option for flag, option in options.items() if flag not in listed]
        _write_section("Other options", [*others, *(options[flag] for flag in last)], ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        super().format_epilog(ctx, formatter)
        if examples := EXAMPLES.get(self.name or ""):
            with formatter.section("Examples"):
                for line in examples:
                    formatter.write(f"  {line}\n")


def complete_help(command: click.Command) -> None:
    """Give a command, and those in it, what click's help lacks.

    That is a word for the value of each option instead of click's type, and in a list of commands the whole
    first sentence instead of its beginning.
    """
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.metavar is None and not parameter.is_flag:
            parameter.metavar = _value_name(parameter)
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        inner.short_help = (inner.help or "").partition("\n\n")[0]
        complete_help(inner)


def _value_name(option: click.Option) -> str | None:
    """Return a word for the value of an option: N for a number, else how its name ends; None for a choice."""
    if isinstance(option.type, click.types.IntParamType | click.types.FloatParamType):
        return "N"
    if isinstance(option.type, click.types.StringParamType):
        word = _flag(option).rpartition("-")[2].upper()
        return "TIME" if word in _TIMES else word
    return None


_TIMES = frozenset({"TIMEOUT", "CALIBRATION", "DURATION", "RAMP"})
"""Last words of options that take a time."""


def show_all_options(ctx: click.Context) -> click.Context:
    """Make the help of a context show all options."""
    ctx.meta[_ALL] = True
    return ctx


def _show_all(ctx: click.Context, _parameter: click.Parameter, requested: bool) -> None:
    if requested and not ctx.resilient_parsing:
        click.echo(show_all_options(ctx).get_help())
        ctx.exit()


def _flag(parameter: click.Parameter) -> str:
    """Return the first long flag of an option."""
    return next((flag for flag in parameter.opts if flag.startswith("--")), "")


def _write_section(
    title: str, options: Iterable[click.Parameter], ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    records: Sequence[tuple[str, str]] = [
        record for option in options if (record := option.get_help_record(ctx)) is not None
    ]
    if records:
        with formatter.section(title):
            formatter.write_dl(records)
