"""The rules that keep the code base easy to enter; docs/explanation/architecture.md states them."""

from __future__ import annotations

import ast
import gc
import importlib
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from modeldyno.base.metrics.doubt import CODES

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "modeldyno"
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FILE_NAME = re.compile(r"`{1,2}((?:[\w.-]+/)*[\w-]+\.(?:py|md|toml|js|css))`{1,2}|\b(docs/[\w/-]+\.md)\b")
MODULE_NAME = re.compile(
    r"`((?:modeldyno\.)?(?:base|models|engine|stores|reports|profiling|regions|exchange|conversion|serving|sweeps|comparison|registry|dashboard|compat)\.[a-z_.]+)\b"
)


PURE = re.findall(
    r"[a-z]+/[a-z]+", re.findall(r"(?m)^PURE := (?:.*\\\n)*.*", (ROOT / "Makefile").read_text())[0]
)
"""Rooms of which every branch is tested."""
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
PLUGIN_ROOMS = tuple(
    f"modeldyno.{room}."
    for room in (
        "models.loaders", "engine.backends", "engine.probes", "engine.samplers", "serving.backends",
        "serving.clients", "serving.loaders", "serving.probes", "conversion.converters",
        "exchange.importers", "exchange.exporters", "sweeps.strategies", "stores", "reports",
    )
)  # fmt: skip
WRONG_WAY = 21
"""Imports that still run against the order of the rooms: the list in pyproject.toml only becomes shorter."""


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the package by its dotted name, parsed."""
    trees = {}
    for path in sorted(SOURCE.rglob("*.py")):
        if "migrations" not in path.parts:  # Alembic's scripts, imported by nobody
            parts = path.relative_to(SOURCE.parent).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            trees[name] = ast.parse(path.read_text(encoding="utf-8"))
    return trees


@pytest.fixture(scope="module", autouse=True)
def _no_tree_is_garbage() -> Iterator[None]:
    """Parse without the collector, which would take twice as long as the parser to search all nodes."""
    gc.disable()
    yield
    gc.enable()


@cache
def nodes() -> dict[str, list[ast.AST]]:
    """Every module of the package by its dotted name, as the list of all its nodes."""
    return {name: list(ast.walk(tree)) for name, tree in modules().items()}


def imported_modules(inside: list[ast.AST]) -> Iterator[str]:
    """Every module of the package that nodes import, in functions and for types as well."""
    for node in inside:
        if isinstance(node, ast.ImportFrom) and node.module in modules():
            for alias in node.names:
                full_name = f"{node.module}.{alias.name}"
                yield full_name if full_name in modules() else str(node.module)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules())


def reachable(start: str, arrows: dict[str, set[str]]) -> set[str]:
    """Every module that can be reached from one by following imports."""
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        for target in arrows[waiting.pop()] - reached:
            reached.add(target)
            waiting.append(target)
    return reached


def test_the_layers_hold() -> None:
    """import-linter finds every contract of pyproject.toml kept."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout


def test_what_runs_the_wrong_way_becomes_less() -> None:
    """No import against the order of the rooms is added; where one goes, the number here follows."""
    (layers,) = (contract for contract in CONTRACTS if contract["type"] == "layers")

    assert len(layers["ignore_imports"]) == WRONG_WAY


def test_what_must_be_pure_is_what_is_covered() -> None:
    """The contract and the command of the tests name the same rooms."""
    (pure,) = (contract for contract in CONTRACTS if "pure" in contract["name"])
    listed = {name.removeprefix("modeldyno.").replace(".", "/") for name in pure["source_modules"]}

    assert listed - {"base/errors"} == set(PURE)


def test_no_imports_run_in_a_circle() -> None:
    """Imports for types and imports within functions count as well."""
    arrows = {name: set(imported_modules(inside)) - {name} for name, inside in nodes().items()}

    assert [name for name in arrows if name in reachable(name, arrows)] == []


SPELLS_OPTIONS = {
    "base.option_spelling": "it spells fields",
    "base.options": "the help of an option",
    "exchange.importers.aiperf": "an option of AIPerf",
    "exchange.importers.vllm": "options of vllm",
    "profiling.resolve_model": "an option of docker",
    "serving.backends.openai": "the command of a server",
    "serving.backends.triton_remote": "an option of tritonserver",
    "sweeps.model_analyzer_keys": "an option of tritonserver",
}
"""Modules below the command line whose texts name options, and why."""
A_COMMAND = re.compile(r"\b(?:modeldyno [a-z]|perf_analyzer|pytest|tritonserver).*")
"""A command that a text suggests, to the end of the text: it is typed as it is, wherever it is read."""


def test_no_message_below_the_command_line_spells_an_option() -> None:
    """Messages name fields; the command line and Python spell them. Views show what the terminal does."""
    spelling = {
        name.removeprefix("modeldyno.")
        for name, inside in nodes().items()
        if not {"cli", "testing", "views"} & set(name.split("."))
        for text in messages(inside)
        if OPTION.search(A_COMMAND.sub("", text))
    }

    assert spelling == set(SPELLS_OPTIONS)


def messages(inside: list[ast.AST]) -> Iterator[str]:
    """Every text of more than a word that is no docstring, with a word for each value filled in."""
    parts = {id(part) for node in inside if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    parts |= {id(node.value) for node in inside if isinstance(node, ast.Expr)}
    for node in inside:
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            text = node.value
        else:
            continue
        if " " in text.strip():
            yield text


def test_no_two_public_classes_have_one_name() -> None:
    """A class that is searched for is found once; plugins of a kind may each have their Session."""
    homes = defaultdict(list)
    for name, tree in modules().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name)

    assert {
        name: homes_of_name
        for name, homes_of_name in homes.items()
        if len(homes_of_name) > 1 and not all(home.startswith(PLUGIN_ROOMS) for home in homes_of_name)
    } == {}


def test_nothing_is_timed_by_the_wall_clock() -> None:
    """No module of the package calls time.time or time.time_ns."""
    calls = [
        f"{name}:{node.lineno}"
        for name, inside in nodes().items()
        for node in inside
        if isinstance(node, ast.Attribute)
        and node.attr in {"time", "time_ns"}
        and isinstance(node.value, ast.Name)
        and node.value.id == "time"
    ]

    assert calls == []


_STARTS_NO_MODEL = {
    "serving/loadgen/driver_process.py": "senders of a load",
    "serving/loadgen/calibration.py": "the server that plays a load again",
    "engine/samplers/sidecar.py": "readers of the machine",
    "engine/samplers/nvidia_smi.py": "a program of the driver",
    "serving/backends/triton.py": "a program that runs containers",
    "reports/pdf.py": "a browser",
    "engine/environment/accelerator_peaks.py": "our own loops, of which peaks are measured",
    "engine/environment/containers.py": "a program that runs containers",
    "engine/environment/nvidia_smi.py": "a program of the driver",
    "engine/environment/other_devices.py": "a program of a driver",
    "engine/environment/peaks.py": "our own loops, of which peaks are measured",
    "registry/worker_process.py": "workers, which start models by the one way",
    "exchange/jobs.py": "commands of ours, which start models by the one way",
    "cli/actions/engine.py": "a command of an engine, as it was typed",
    "cli/__init__.py": "itself, with names in UTF-8",
    "cli/actions/trend.py": "a hook of the user",
    "registry/webhooks.py": "a hook of the user",
    "serving/servers/install.py": "installers",
    "serving/servers/server_process.py": "supervisors of servers",
    "serving/servers/supervisor.py": "servers",
    "engine/runtime/supervised_child.py": "the one way",
    "engine/runtime/forked_analysis.py": "a fork of a supervised child",
    "engine/runtime/reaper.py": "what supervised_child.py orders",
}
_STARTS = re.compile(
    r"subprocess\.(Popen|run|call|check_\w+)\(|os\.(fork|posix_spawn\w*|system|exec[lv]\w*)\b"
    r"|from os import .*\bfork\b|import multiprocessing|\.get_context\("
)


def test_a_model_is_loaded_in_supervised_children_only() -> None:
    """A file that starts processes is in the table, which says what they are: no other loads a model."""
    starting = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if "testing" not in path.parts and _STARTS.search(path.read_text())
    }
    assert starting == set(_STARTS_NO_MODEL)


def test_every_doubt_that_the_code_raises_is_in_the_table() -> None:
    """No adapter invents a code that the reference does not explain."""
    raised = {
        keyword.value.value
        for name, inside in nodes().items()
        if ".testing." not in name
        for node in inside
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Doubt"
        for keyword in node.keywords
        if keyword.arg == "code" and isinstance(keyword.value, ast.Constant)
    }

    assert raised - {None} <= set(CODES)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    """A file of the package, of the tests or of the documents is where the page says."""
    assert missing_files(page.read_text(encoding="utf-8")) == []


def test_every_file_and_module_that_a_docstring_names_exists() -> None:
    """So that a reader can follow the reference."""
    texts = {name: "\n".join(docstrings(inside)) for name, inside in nodes().items()}

    assert {
        name: missing
        for name, text in texts.items()
        if (missing := missing_files(text) + missing_modules(text))
    } == {}


VAGUE = frozenset({"asked", "found", "hands", "looks", "said", "sides", "told", "wanted"})
"""Names that say how a value came about and not what it is."""
BOUND_VAGUELY = re.compile(
    rf"(?<![\w.])_*(?:{'|'.join(sorted(VAGUE))})_*\s*(?:[-+*/|&^%@<>]*=|[,:)\](]|in\b)"
)
"""What stands wherever such a name is bound, and in some prose: only files that have it are parsed."""


def test_no_name_only_says_how_its_value_came_about() -> None:
    """No function of the package, tests, bench or examples assigns, takes or is called by a vague name."""
    vague = [
        f"{path.relative_to(ROOT)}:{line}: '{name}'"
        for folder in (SOURCE, ROOT / "tests", ROOT / "bench", ROOT / "examples")
        for path in sorted(folder.rglob("*.py"))
        if BOUND_VAGUELY.search(text := path.read_text(encoding="utf-8"))
        for name, line in bound_names(ast.parse(text))
        if name.strip("_") in VAGUE
    ]

    assert not vague, f"name each of these by what it is, a function by a verb or what it returns: {vague}"


PARTICIPLE = re.compile(
    r"_*(?!deepspeed)([a-z]+ed|broken|built|done|driven|frozen|held|hit|left|stolen|written|[a-z]+ing)"
)
"""A participle that stands alone: ``tried``, ``training``."""


PLUGINS = ROOT / "examples" / "plugins"
"""What these must define is named by the Protocols."""


def test_no_function_beside_the_package_is_only_a_participle() -> None:
    """A function of bench, examples or docs is a verb or the noun it returns."""
    participles = [
        f"{path.relative_to(ROOT)}:{node.lineno}: '{node.name}'"
        for folder in ("bench", "examples", "docs")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if PLUGINS not in path.parents
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and PARTICIPLE.fullmatch(node.name)
    ]

    assert not participles, f"name each of these by a verb or by what it returns: {participles}"


def test_what_a_bench_names_of_another_exists() -> None:
    """They are scripts, which nothing else checks until one is run."""
    trees = {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in ROOT.glob("bench/*.py")}
    named: list[str] = []
    for bench, tree in trees.items():
        imported = {
            alias.asname or alias.name: alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
            if alias.name in trees
        }
        named += [
            f"{bench}: {imported[node.value.id]}.{node.attr}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in imported
        ]
        named += [
            f"{bench}: {node.module}.{alias.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module in trees
            for alias in node.names
        ]
    defined = {
        f"{bench}.{name}"
        for bench, tree in trees.items()
        for node in tree.body
        for name in (
            [node.name]
            if isinstance(node, ast.FunctionDef | ast.ClassDef)
            else [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]
            + [alias.asname or alias.name for alias in getattr(node, "names", ())]
        )
    }
    assert [text for text in named if text.partition(": ")[2] not in defined] == []


def bound_names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Every name that a module assigns, takes as a parameter, or gives a function, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno


IMPORT = re.compile(r"from (modeldyno(?:\.\w+)*) import (\w+(?:, \w+)*)")
WITH_CODE = (
    "Makefile",
    "action.yml",
    "*.md",
    "docs/**/*.md",
    "bench/*.py",
    "examples/**/*.py",
    "tests/**/*.py",
)


def test_every_import_in_a_text_can_be_made() -> None:
    """Also in a recipe of make and in a string that becomes another process, which no type checker sees."""
    imports = {
        (module, name): str(path.relative_to(ROOT))
        for pattern in WITH_CODE
        for path in ROOT.glob(pattern)
        for module, names in IMPORT.findall(path.read_text(encoding="utf-8"))
        for name in names.split(", ")
    }
    assert len(imports) > 100
    assert {
        f"{module}.{name}": path for (module, name), path in imports.items() if not module_has(module, name)
    } == {}


def module_has(module: str, name: str) -> bool:
    """Whether a module gives a name, or has a module of that name."""
    if module not in modules():
        return False
    return (
        f"{module}.{name}" in modules()
        or name in names_in(module)
        or hasattr(importlib.import_module(module), name)
        or name in types_of(module)
    )


def types_of(module: str) -> set[str]:
    """The names that a module has only while types are checked."""
    branches = [node for node in modules()[module].body if isinstance(node, ast.If)]
    return {
        name
        for node in ast.walk(ast.Module(body=[*branches], type_ignores=[]))
        for name in (
            *(
                alias.asname or alias.name
                for alias in getattr(node, "names", [])
                if isinstance(alias, ast.alias)
            ),
            *(target.id for target in getattr(node, "targets", []) if isinstance(target, ast.Name)),
        )
    }


def docstrings(inside: list[ast.AST]) -> Iterator[str]:
    """Every string that stands alone as a statement: docstrings, and what stands below a field."""
    for node in inside:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)


def missing_files(text: str) -> list[str]:
    """The files of this repository that a text names and that are not there."""
    names = [file or page for file, page in FILE_NAME.findall(text)]
    if not names:
        return []
    ours = (
        "docs",
        "src",
        "tests",
        "bench",
        "examples",
        "tools",
        *(p.name for p in SOURCE.iterdir() if p.is_dir()),
    )
    return [
        name
        for name in names
        if name.partition("/")[0] in ours and not (ROOT / name).exists() and not (SOURCE / name).exists()
    ]


def missing_modules(text: str) -> list[str]:
    """The modules of the package that a text names and that are not there."""
    missing = []
    for name in MODULE_NAME.findall(text):
        full_name = f"modeldyno.{name.removeprefix('modeldyno.')}"
        parent, _, last = full_name.rpartition(".")
        if full_name not in modules() and last not in names_in(parent):
            missing.append(name)
    return missing


def names_in(module: str) -> set[str]:
    """What a module defines or imports, and where it is a class, what it has."""
    tree = modules().get(module)
    if tree is None:
        parent, _, last = module.rpartition(".")
        classes = [n for n in getattr(modules().get(parent), "body", []) if isinstance(n, ast.ClassDef)]
        bodies = [node for kind in classes if kind.name == last for node in kind.body]
    else:
        bodies = [part for node in tree.body for part in (node.body if isinstance(node, ast.If) else [node])]
    return {
        name
        for node in bodies
        for name in (
            getattr(node, "name", ""),
            *(
                alias.asname or alias.name
                for alias in getattr(node, "names", [])
                if isinstance(alias, ast.alias)
            ),
            *(t.id for t in getattr(node, "targets", []) if isinstance(t, ast.Name)),
            getattr(getattr(node, "target", None), "id", ""),
        )
    }
