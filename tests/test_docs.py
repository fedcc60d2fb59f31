"""What the documents claim."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

import modeldyno
from modeldyno.base.errors import UncertifiedWarning
from modeldyno.cli import cli, main
from modeldyno.cli import load as load_command
from modeldyno.testing.server import serve_in_subprocess

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
RECIPES = (ROOT / "docs" / "howto" / "recipes.md").read_text(encoding="utf-8")
FRONT = README + RECIPES
COMMANDS = list(dict.fromkeys(re.findall(r"^\$ (modeldyno .*)$", FRONT, re.MULTILINE)))
PYTHON = re.findall(r"```python\n(.*?)```", FRONT, re.DOTALL)
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
QUICK = """
[profile]
max_time = "0.5s"
min_time = "0.02s"
precision = "90%"

[compare]
run_time = "0.2s"
min_time = "0.02s"
precision = "90%"

[sweep]
trial_time = "0.5s"
min_time = "0.02s"
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of what the README speaks of, with short measurements and a store of its own."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "modeldyno.toml").write_text(QUICK)
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path}/store.db")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_readme_is_short() -> None:
    """A newcomer reads it to the end: fewer than 150 lines, and five things to try."""
    assert len(README.splitlines()) < 150
    assert len(re.findall(r"^\*\*.*\?\*\*", README, re.MULTILINE)) == 5


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_command_of_every_page_is_known(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its words are read as those of the command, with the files of the page; `make test-pages` runs them."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    monkeypatch.chdir(tmp_path)
    for name, content in re.findall(r"```yaml\n# (\S+\.yaml)\n(.*?)```", text, re.DOTALL):
        Path(name).write_text(content)
    for line in re.findall(r"^\$ modeldyno (.*)$", text, re.MULTILINE):
        command: click.Command | None = cli
        arguments = shlex.split(re.split(r"&&|\s# ", line)[0])
        context = click.Context(cli, info_name="modeldyno")
        while isinstance(command, click.Group) and not (
            command.invoke_without_command and (not arguments or arguments[0].startswith("-"))
        ):
            _, command, arguments = command.resolve_command(context, arguments)
        assert command is not None
        command.make_context("modeldyno", arguments, **cli.context_settings)


def test_the_python_of_every_page_is_python() -> None:
    """And what it imports from modeldyno is there; `make test-pages` runs it."""
    for page in PAGES:
        for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            for node in ast.walk(ast.parse(block, str(page))):
                if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "modeldyno":
                    module = importlib.import_module(str(node.module))
                    assert all(each.name == "*" or hasattr(module, each.name) for each in node.names), page


@pytest.mark.timeout(600)
@pytest.mark.pages
@pytest.mark.parametrize("page", [README, RECIPES], ids=["readme", "recipes"])
def test_every_command_of_a_page_works(page: str, checkout: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """They are run one after the other, as a reader would; a busy machine may break a bound."""
    commands = [
        command for command in COMMANDS if command in page and (page is README or command not in README)
    ]
    assert len(commands) >= 4
    for command in commands:
        arguments = shlex.split(command)[1:]
        if arguments[0] in {"engine", "load"}:  # the next test runs what needs no engine
            continue
        arguments = ["2" if before == "--max-rounds" else word for before, word in pairwise(["", *arguments])]
        if arguments[0] == "run":  # it becomes the script's own process
            subprocess.run([sys.executable, "-m", "modeldyno", *arguments], check=True)
            continue
        with pytest.raises(SystemExit) as left:
            main(arguments)

        fine = {0, 1, 5} if "--require" in arguments else {0, 5}
        assert left.value.code in fine, (command, capfd.readouterr().err)
    reports = [*checkout.glob("*.html")]
    assert bool(reports) == (".html" in "".join(commands))
    assert all(report.read_text().startswith("<!doctype html>") for report in reports)


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("checkout")
@pytest.mark.pages  # it runs what the pages say
def test_the_loads_of_the_readme_and_the_recipes_work() -> None:
    """Those of a URL are run, for a shorter time; those that need an engine are words that are known."""
    loads = [shlex.split(command)[1:] for command in COMMANDS if " load " in command]
    assert len(loads) >= 4
    with serve_in_subprocess("--service", "exponential:0.002", "--workers", "4") as running:
        for arguments in loads:
            there = [word.replace("127.0.0.1:8000", f"127.0.0.1:{running.port}") for word in arguments]
            short = ["0.5s" if before == "--duration" else word for before, word in pairwise(["", *there])]
            if "://" not in arguments[1]:
                load_command.command.make_context("load", short[1:], **cli.context_settings)
                assert Path(arguments[1]).is_file()
                continue
            with pytest.raises(SystemExit) as left:
                main(short)
            assert left.value.code == 0, arguments


@pytest.mark.parametrize(
    "block",
    [block if block in README else pytest.param(block, marks=pytest.mark.pages) for block in PYTHON],
    ids=["readme", "recipes"],
)
def test_the_python_of_the_readme_and_the_recipes_works(checkout: Path, block: str) -> None:
    """The blocks run as they stand, but for a shorter time."""
    assert checkout == Path.cwd()
    names: dict[str, object] = {}
    assert "max_time=10" in block
    with warnings.catch_warnings():
        # Half a second on a busy machine certifies no median; the block says that a warning tells so.
        warnings.simplefilter("ignore", UncertifiedWarning)
        exec(block.replace("max_time=10", "max_time=0.5, min_time=0.02"), names)

    assert isinstance(names["result"], modeldyno.Result)


@pytest.mark.pages
def test_the_recipe_for_a_notebook_runs(checkout: Path) -> None:
    """The example of the Python API works as it stands."""
    pytest.importorskip("torch")
    _imported(checkout / "examples" / "recipes" / "notebook.py")


@pytest.mark.parametrize("page", ["metrics.md", "doubts.md", "command-line.md", "operators.md", "python.md"])
def test_the_reference_is_what_the_code_says(page: str) -> None:
    """The pages that are tables of the code are up to date: python docs/reference/generate.py."""
    generate = ROOT / "docs" / "reference" / "generate.py"
    code = f"import runpy, sys; sys.stdout.write(runpy.run_path(sys.argv[1])['PAGES'][{page!r}]())"
    # In a process of its own: this one may have metrics that other tests define.
    made = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", code, str(generate)], capture_output=True, text=True, check=True
    )

    assert (ROOT / "docs" / "reference" / page).read_text(encoding="utf-8") == made.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link of a page is a file."""
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8"))

    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_decision_is_in_the_index() -> None:
    """The index of decisions misses no page."""
    index = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")

    assert all(path.name in index for path in (ROOT / "docs" / "decisions").glob("0*.md"))


def _imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_figure_of_the_registry_has_a_command_that_is_there() -> None:
    """Those of the table are those of `make bench-registry`; their files and options exist."""
    page = (ROOT / "docs" / "explanation" / "registry-figures.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in re.findall(r"^\| (.*) \|$", page, re.MULTILINE)[1:]]
    commands = [cell.strip("`") for *_, cell in rows if cell.startswith("`")]
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("bench-registry: setup")[2]
    assert re.findall(r"^\t    '(.*)' \\$", recipe.partition("; do")[0], re.MULTILINE) == commands
    assert len(rows) >= len(commands) >= 12
    for command in commands:
        arguments = command.split()
        (path,) = [ROOT / word for word in arguments if word.endswith(".py")]
        source = path.read_text(encoding="utf-8")
        if path.parent.name == "bench":
            assert all(f'"{word}"' in source for word in arguments if word.startswith("--"))
        assert ("slow" in arguments) <= ("pytest.mark.slow" in source)
