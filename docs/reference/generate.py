"""Writes the pages of this folder that are tables of the code: ``python docs/reference/generate.py``.

A test compares the pages with what this gives.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections import defaultdict
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import click

import modeldyno
from modeldyno import errors, types
from modeldyno.base.metrics.doubt import DISCREDITING, DISTURBING, INCIDENTAL
from modeldyno.base.metrics.metric import METRICS
from modeldyno.cli import COMMANDS, GROUPS, cli
from modeldyno.cli.help_pages import show_all_options
from modeldyno.models.flops.registry import describe_formula, formulas
from modeldyno.profiling.api.error_wording import readable_signature
from modeldyno.sweeps import model_analyzer_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from modeldyno.models.flops import Formula

HERE = Path(__file__).parent
_UNITS = {"": "count", "1": "fraction"}


def metrics() -> str:
    """The table of metrics."""
    rows = [
        f"| `{m.name}` | {_UNITS.get(m.unit, m.unit)} | {m.better} | {m.sentence} |" for m in METRICS.values()
    ]
    return "\n".join(
        ["# Metrics", "", "| metric | base unit | better | meaning |", "|---|---|---|---|", *rows, ""]
    )


def doubts() -> str:
    """The tables of doubts, the most serious first."""
    lines = ["# Doubts"]
    for title, codes in (
        ("Trust low: what was measured may not be the work, the machine or the load", DISCREDITING),
        ("Trust limited: others disturbed it, or it is uncertain, assumed or not comparable", DISTURBING),
        ("About other figures: one beside the main ones is rough or lacking", INCIDENTAL),
    ):
        rows = [f"| `{code}` | {sentence} |" for code, sentence in codes.items()]
        lines += ["", f"## {title}", "", "| code | meaning |", "|---|---|", *rows]
    return "\n".join([*lines, ""])


def model_analyzer() -> str:
    """Every key, flag and metric of Model Analyzer, and what stands here in its place."""
    named = {
        "Keys of its file, and options of its command line": model_analyzer_keys.KEYS,
        "perf_analyzer_flags": model_analyzer_keys.PERF_ANALYZER_FLAGS,
        "genai_perf_flags": model_analyzer_keys.GENAI_PERF_FLAGS,
        "Metrics of objectives, constraints and plots": {
            **{name: f"`{query}`" for name, (query, _) in model_analyzer_keys.METRICS.items()},
            **model_analyzer_keys.METRICS_WITHOUT_COUNTERPART,
        },
    }
    lines = [
        "# Words of Model Analyzer",
        "",
        "What `modeldyno sweep --from-model-analyzer FILE` makes of each, and the answer to one of its",
        "command lines; what they leave out they name. An option is its key with hyphens:",
        "`--latency-budget` is `latency_budget`.",
    ]
    for title, table in named.items():
        rows = [f"| `{name}` | {text.replace('|', '/')} |" for name, text in table.items()]
        lines += ["", f"## {title}", "", "| Model Analyzer | here |", "|---|---|", *rows]
    return "\n".join([*lines, ""])


def command_line() -> str:
    """The help of every command."""
    context = click.Context(cli, info_name="modeldyno", terminal_width=88, **cli.context_settings)
    pages = [cli.get_help(context)]
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        shown = click.Context(command, context, info_name=name, terminal_width=88)
        pages.append(command.get_help(show_all_options(shown)))
        for word in command.list_commands(shown) if isinstance(command, click.Group) else ():
            part = command.get_command(shown, word)
            assert part is not None
            pages.append(part.get_help(click.Context(part, shown, info_name=word, terminal_width=88)))
    blocks = [f"```text\n{page}\n```\n" for page in pages]
    lead = (
        "Defaults come from `modeldyno.toml` (a table per command, `[profile]`, in this directory\n"
        "or one above), from the environment (`MODELDYNO_PROFILE_MAX_TIME=5s`), and from flags; the\n"
        "later wins. The help of a command that has many options shows the first twelve; `--help-all` shows\n"
        "them all, as below.\n\n"
        "Commands, options and files are completed by the shell after\n"
        '`eval "$(_MODELDYNO_COMPLETE=bash_source modeldyno)"`; zsh takes `zsh_source`.\n'
    )
    return "\n".join(["# Command line", "", lead, *blocks])


_DIALECTS = {
    "aten": "PyTorch. Variants in place (`add_`) are listed only where they cost something else.",
    "onnx": "ONNX.",
    "tf": "TensorFlow.",
    "tflite": "TensorFlow Lite.",
    "com.microsoft": "ONNX Runtime.",
}


def operators() -> str:
    """The table of formulas: for each dialect, what is counted in which way."""
    table = formulas()
    groups: defaultdict[str, defaultdict[tuple[str, int, str], list[str]]] = defaultdict(
        lambda: defaultdict(list)
    )
    sentences: dict[tuple[str, int, str], tuple[str, str]] = {}
    for kind, formula in table.items():
        dialect, _, name = kind.rpartition(".")
        twin = kind.removesuffix("_")
        if twin != kind and twin in table and describe_formula(table[twin]) == describe_formula(formula):
            continue
        sentence, given = _convention(formula)
        key = (*_place(formula), given)
        sentences[key] = sentence, given
        groups[dialect][key].append(name)
    lines = [
        "# Operators",
        "",
        "What one call of an operator costs, by its name. 1 MAC is 2 FLOPs; everything else is element-wise",
        "([how it counts](../explanation/counting.md)). Before a colon stand the values of the names in the",
        "sentence, and what the operator calls its arguments. What is not listed has no formula, and is",
        "reported as not counted ([give it one](../howto/count-your-operator.md)).",
    ]
    for dialect, found in groups.items():
        lines += ["", f"## {dialect}", ""]
        lines += [_DIALECTS[dialect], ""] if dialect in _DIALECTS else []
        before = ""
        for key in sorted(found, key=lambda key: (*key[:2], _numbers(key[2]))):
            sentence, given = sentences[key]
            if sentence != before:
                lines += ["", sentence, ""] if before else [sentence, ""]
            before = sentence
            lines += _wrap_names(given, sorted(found[key]))
    return "\n".join([*lines, ""])


def _place(formula: Formula) -> tuple[str, int]:
    """Tell where a formula is defined: those that are alike stand together."""
    function = getattr(formula, "func", formula)
    return function.__module__, function.__code__.co_firstlineno


def _convention(formula: Formula) -> tuple[str, str]:
    """Give the sentence of a formula, and what the names in it are: as given, or by default."""
    function = getattr(formula, "func", formula)
    sentence = describe_formula(function)
    given = {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
        and (f"`{name}`" in sentence or (name == "operations" and name in sentence))
    }
    given |= getattr(formula, "keywords", {})
    texts = (f"{name} = {', '.join(map(str, value)) if isinstance(value, tuple) else value}"
             for name, value in given.items() if value != "")  # fmt: skip
    return sentence, "; ".join(texts)


def _numbers(text: str) -> list[tuple[int, str]]:
    """Sort 9 before 13."""
    return [(int(word), "") if word.isdigit() else (-1, word) for word in text.replace(";", " ").split()]


def _wrap_names(given: str, names: list[str]) -> list[str]:
    text = (f"{given}: " if given else "") + ", ".join(f"`{name}`" for name in names)
    return textwrap.wrap(
        text, 118, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def python() -> str:
    """Every public name of Python with its signature and its docstring, by the heading of its command."""
    headings = {name: heading for heading, names in _MORE.items() for name in names.split()}
    headings |= {command: heading for heading, commands in GROUPS.items() for command in commands}
    named: defaultdict[str, list[str]] = defaultdict(list)
    for name in modeldyno.__all__:
        named[headings.get(name, "Documents, values and errors")].append(name)
    parts = [
        "# Python",
        "",
        "What `import modeldyno` gives; `help(modeldyno.profile)` shows the same. A command that has",
        "commands of its own is a module: `modeldyno registry add` is `modeldyno.registry.add`. What the",
        "author of a plugin imports is in `modeldyno.plugin` ([write a plugin](../howto/write-a-plugin.md)),",
        "and `modeldyno.errors` and `modeldyno.types` have what is named in annotations and `except`:",
        "",
        *_wrap_names("errors", [*errors.__all__]),
        *_wrap_names("types", [*types.__all__]),
        "",
    ]
    for heading in dict.fromkeys((*GROUPS, *named)):
        parts += [f"## {heading}", "", *_describe_names("", named[heading])] if named[heading] else []
    for module in _MODULES:
        names = getattr(modeldyno, module).__all__
        parts += [f"## modeldyno.{module}", "", *_describe_names(f"{module}.", sorted(names))]
    return "\n".join(parts)


_MORE = {
    "Measure": "profiled watch register_metric", "Serve": "find_load load_curve", "Judge": "gate",
    "Keep": "read save open_model",
}  # fmt: skip
"""Heading of commands to the functions that stand under it besides those of its commands."""
_MODULES = ("registry", "servers", "store", "plugins", "serving", "sweeps", "regions", "compat")


def _describe_names(prefix: str, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        yield from (
            f"### `modeldyno.{prefix}{name}`",
            "",
            "```text",
            *_describe_name(prefix + name),
            "```",
            "",
        )


def _describe_name(name: str) -> Iterator[str]:
    """Yield the lines about a public name: how it is called, what it is, and what it has."""
    value, name = attrgetter(name)(modeldyno), name.rpartition(".")[2]
    if not callable(value):
        yield f"{name} = {value}"
        return
    words = f"{name}{_signature(value)}" if inspect.isfunction(value) else f"class {name}"
    yield from textwrap.wrap(words, 100, subsequent_indent="    ", break_long_words=False)
    yield from textwrap.indent(inspect.getdoc(value) or "", "    ").splitlines()
    for member, what in sorted(vars(value).items()) if inspect.isclass(value) else ():
        if not member.startswith("_") and (inspect.isfunction(what) or isinstance(what, property)):
            call = _signature(what) if inspect.isfunction(what) else ""
            sentence = (inspect.getdoc(what) or "").partition("\n")[0]
            yield ""
            yield from textwrap.indent(textwrap.fill(f".{member}{call}", 96), "    ").splitlines()
            yield f"        {sentence}"


def _signature(function: Callable[..., object]) -> str:
    text = str(readable_signature(function))
    return re.sub(r"<function (\w+)[^>]*>|<[^>]*>", r"\1...", text)


def benches() -> str:
    """The table of benches: what each asks, which command runs it, and the pages that cite it."""
    root = HERE.parent.parent
    pages = {
        page: page.read_text("utf-8")
        for page in sorted(root.glob("docs/*/*.md"))
        if page.name != "benches.md"
    }
    target, targets = "", defaultdict(list)
    for line in (root / "Makefile").read_text("utf-8").splitlines():
        target = match[1] if (match := re.match(r"(\S+):", line)) else target
        for name in re.findall(r"bench/(\w+)\.py", line):
            targets[name] += [target] if target.startswith(("bench", "gate")) else []
    rows = []
    for script in sorted((root / "bench").glob("*.py")):
        question = (ast.get_docstring(ast.parse(script.read_text("utf-8"))) or "").partition("\n\n")[0]
        runs = f"`make {targets[script.stem][-1]}`" if targets[script.stem] else ""
        cited = ", ".join(
            f"[{page.stem}](../{page.parent.name}/{page.name})"
            for page, text in pages.items()
            if f"bench/{script.name}" in text and page.parent.name != "decisions"
        )
        rows.append(f"| `{script.name}` | {' '.join(question.split())} | {runs} | {cited} |")
    return "\n".join(
        [
            "# Benches",
            "",
            "A claim about speed is a ratio against a peer in one alternating run: `python bench/NAME.py`,",
            "or the make target that installs what it needs.",
            "",
            "| script | what it asks | target | cited by |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


PAGES = {
    "benches.md": benches,
    "python.md": python,
    "metrics.md": metrics,
    "doubts.md": doubts,
    "model-analyzer.md": model_analyzer,
    "command-line.md": command_line,
    "operators.md": operators,
}


def main() -> None:
    """Write the pages."""
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
