"""The command line and the Python API are equal: this test walks both.

Each command has a function, and each option a parameter of the same name: ``--max-time`` is ``max_time``.
An option that may be repeated may be in the plural. Whatever differs stands in one of the tables below, with
where it is in Python or why it is nowhere. A new option without a parameter fails here, and so does a new
parameter without an option; so does an entry of a table that is not needed any more.
"""

from __future__ import annotations

import inspect
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click
import pytest

import modeldyno
from modeldyno.base.options import LOAD
from modeldyno.base.stats import schedule
from modeldyno.cli import COMMANDS, cli
from modeldyno.cli.actions import options as options_action
from modeldyno.comparison.api import advise as api_advise
from modeldyno.profiling.api.error_wording import keywords_of
from modeldyno.profiling.api.settings import Knobs, PlannedKnobs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True)
class At:
    """Where an option is in Python: a parameter of a function or method."""

    function: str
    parameter: str


@dataclass(frozen=True)
class Nowhere:
    """Why there is no counterpart."""

    why: str


FUNCTIONS: dict[str, str | Nowhere] = {
    **{name: f"store.{name}" for name in ("list", "show", "tag", "rm", "prune")},
    "import": "store.import_results",  # a keyword of Python
    "plugins": Nowhere("a group; by itself it is plugins list"),
    "plugins new": Nowhere("writes the files of a package once, before there is anything to import"),
    "engine": Nowhere("installs programs on a machine, once, before anything is measured"),
    "help": Nowhere("Python has help()"),
    "servers": "servers.list",
    "servers stop": "servers.stop",
    "worker": "registry.work",
    "registry": Nowhere("a group: each of its commands has a function"),
}
"""Commands whose function has another name, or that have none."""

COMPANIONS = {
    "gate": "profile",
    "load_curve": "load",
    "find_load": "load",
    "sweeps.rerank": "sweep",
    "sweeps.sweep_models": "sweep",
    "sweeps.rank_models": "sweep",
    "sweeps.from_model_analyzer": "sweep",
    "serving.rerank_load": "load",
    "sweeps.export_configs": "sweep",
    "store.findings": "show",
    "serving.replicas": "show",
    "registry.idle_devices": "worker",
    "servers.containers": "servers",
    "store.job_of": "show",
}
"""Functions that are part of a command."""

PRINTING = Nowhere("chooses what is printed; a function returns everything")
WRITING = At("report", "output")
EXIT_CODE = Nowhere("only sets the exit code; the returned document has the verdict")

EVERYWHERE: dict[str, At | Nowhere] = {
    "--quiet": PRINTING,
    "--verbose": PRINTING,
    "--help-all": PRINTING,
    "--depth": PRINTING,
    "--sort": PRINTING,
    "--filter": PRINTING,
    "--json": WRITING,
    "--output": WRITING,
}
"""Options that mean the same for any command."""

OPTIONS: dict[tuple[str, str], At | Nowhere] = {
    ("inspect", "--compare"): At("compare", "candidate"),
    ("inspect", "--baseline-input"): At("compare", "baseline_inputs"),
    ("inspect", "--candidate-input"): At("compare", "candidate_inputs"),
    ("inspect", "--table"): PRINTING,
    ("profile", "--model-path"): At("profile", "model"),
    ("profile", "--baseline"): At("gate", "baseline"),
    ("profile", "--max-regression"): At("gate", "max_regression"),
    ("profile", "--metric"): At("gate", "metrics"),
    ("profile", "--force"): At("gate", "force"),
    ("profile", "--undecided"): At("gate", "undecided"),
    ("profile", "--budget"): At("gate", "budget"),
    ("profile", "--save-as-baseline"): At("gate", "save_as_baseline"),
    ("profile", "--junit"): At("save", "path"),
    ("profile", "--sarif"): At("save", "path"),
    ("profile", "--markdown"): At("save", "path"),
    ("profile", "--github"): Nowhere("annotations belong into the log of a step of GitHub Actions"),
    ("profile", "--output-dir"): WRITING,
    ("check", "--junit"): At("save", "path"),
    ("check", "--sarif"): At("save", "path"),
    ("check", "--markdown"): At("save", "path"),
    ("check", "--github"): Nowhere("annotations belong into the log of a step of GitHub Actions"),
    ("load", "--find-load"): At("find_load", "model"),
    ("load", "--most"): At("find_load", "most"),
    ("load", "--measurements"): At("find_load", "measurements"),
    ("load", "--resume"): At("find_load", "resume"),
    ("load", "--force"): At("find_load", "force"),
    ("load", "--rerank"): At("serving.rerank_load", "series"),
    ("load", "--demand"): At("serving.replicas", "demand"),
    ("load", "--price"): At("serving.replicas", "price"),
    ("profile", "--price"): At("serving.replicas", "price"),
    ("sweep", "--until"): At("sweep", "certain"),
    ("sweep", "--rerank"): At("sweeps.rerank", "study"),
    ("sweep", "--export-configs"): At("sweeps.export_configs", "folder"),
    ("sweep", "--overwrite"): At("sweeps.export_configs", "overwrite"),
    ("sweep", "--top"): At("sweeps.export_configs", "top"),
    ("sweep", "--also"): At("sweeps.sweep_models", "models"),
    ("sweep", "--top-models"): At("sweeps.rank_models", "top"),
    ("sweep", "--from-model-analyzer"): At("sweeps.from_model_analyzer", "file"),
    ("sweep", "--trial-time"): At("sweep", "plan"),
    ("sweep", "--concurrency"): At("sweep", "load"),
    ("sweep", "--rate"): At("sweep", "load"),
    ("sweep", "--replay"): At("sweep", "load"),
    ("sweep", "--replay-speed"): At("sweep", "load"),
    ("sweep", "--replay-window"): At("sweep", "load"),
    **{("sweep", row.flag): At("sweep", "load") for row in LOAD},
    ("sweep", "--tag"): Nowhere("is refused: a study has a name and no tags"),
    ("compare", "--baseline-set"): At("compare", "baseline_settings"),
    ("compare", "--candidate-set"): At("compare", "candidate_settings"),
    ("compare", "--run-time"): At("compare", "plan"),
    ("compare", "--all"): PRINTING,
    ("compare", "--fail-on"): EXIT_CODE,
    ("advise", "--run-time"): At("advise", "plan"),
    ("trend", "--fail-on-regression"): EXIT_CODE,
    ("trend", "--exec"): Nowhere("a program that has the Trend calls whatever it wants to"),
    ("run", "script"): At("run", "file"),
    ("run", "--ops"): Nowhere("in Python a block has it: profiled('step', ops=True)"),
    ("run", "arguments"): At("run", "options"),
    ("show", "--job"): At("store.job_of", "result"),
    ("show", "--get"): At("Result.ask", "query"),
    ("show", "--require"): At("Result.judge", "bound"),
    ("show", "--baseline"): At("regions.memory_change", "baseline"),
    ("show", "--findings"): At("store.findings", "result"),
    ("show", "--demand"): At("serving.replicas", "demand"),
    ("show", "--configuration"): At("report", "configurations"),
    ("show", "--price"): At("serving.replicas", "price"),
    ("ui", "--open"): At("ui", "open_browser"),
    ("devices", "--watch"): Nowhere("a loop of Python calls devices() as often as it wants to"),
    ("registry add", "--file"): Nowhere("a file of the same words, which a script passes as arguments"),
    ("worker", "--idle-cpu"): At("registry.work", "idle"),
    ("worker", "--idle-utilization"): At("registry.work", "idle"),
    ("worker", "--idle-memory"): At("registry.work", "idle"),
    ("worker", "--for"): At("registry.work", "idle"),
    ("worker", "--poll"): Nowhere("two seconds suit a script as well"),
}
"""Options that are elsewhere in Python, or nowhere."""

ONLY_PYTHON = {
    "example": "the inputs of a live object, which a command line cannot name",
    "watch": "a function that is called with every event",
    "progress": "the command line shows progress in a terminal and hides it with --quiet",
    "plan": "holds the options of time, precision and limits in one value",
    "studies": "what sweep_models returned",
    "options": "the arguments of sweep for each model, by their own names",
    "outputs": "stands in the file of registry add -f",
    "layouts": "stands in the file of registry add -f",
    "inline": "analyses a referenced model in this process, for a debugger",
}
"""Parameters that no option names."""

SAID_OTHERWISE = {
    "optimizer": "None is adamw, so that an optimizer without training is refused",
    "prompt": "text on the command line, which may be several numbers",
    "generate": "text on the command line, which may be several numbers",
    "settings": "collects every further keyword in Python",
}
"""Parameters whose default is written in another way than that of the option."""

MORE_FUNCTIONS = {
    "regions.check_time": "marks code, as profiled does, and prints what modeldyno run prints",
    "registry.retrieve": "registry list, as versions with any condition",
    "regions.memory_change": "show --baseline, of two Results",
    "compat.detect_regressions": "check --baseline, as a list of the changes for the worse",
    "compat.load_baseline": "the argument of --baseline, as a Result",
    "sweeps.ranking": "the table that sweep prints, of a Study",
    "read": "the argument RESULT, as a document of any kind",
    "store.read_all": "every Result of a file that holds several",
    "open_model": "calls a model from one's own code, which a command line has not",
    "register_metric": "an entry point of modeldyno.metrics, for a script",
    "save": "-o and --json, of one document",
    "store.add": "what is done without --no-store",
    "watch": "a block of code, which a command line has not",
}
"""Public functions that are no command."""


MODULES = ("plugins", "registry", "regions", "servers", "serving", "store", "sweeps")
"""Modules that have functions of the command line."""


def public_functions() -> set[str]:
    """Return the public functions, by their names below `modeldyno`."""
    modules = {name: getattr(modeldyno, name) for name in MODULES}
    names = [*modeldyno.__all__, *(f"{part}.{name}" for part, it in modules.items() for name in it.__all__)]
    return {name for name in (*names, *OF_COMPAT) if inspect.isfunction(public(name))}


OF_COMPAT = ("compat.detect_regressions", "compat.load_baseline")
"""What the interfaces of other tools have of the gate."""


def public(name: str) -> Any:
    """Return what a dotted name below `modeldyno` names."""
    current: Any = modeldyno
    for part in name.split("."):
        current = getattr(current, part)
    return current


@cache
def command(name: str) -> click.Command:
    """Return a command by its name, such as ``profile`` or ``registry add``."""
    current: click.Command | None = cli
    for word in name.split():
        assert isinstance(current, click.Group)
        current = current.get_command(click.Context(current), word)
    assert current is not None
    return current


@cache
def all_commands() -> tuple[str, ...]:
    """Return the commands, and those of the groups that have a function for each."""
    groups = {name: command(name) for name in ("plugins", "registry", "servers")}
    parts = (f"{name} {part}" for name, group in groups.items() for part in group.commands)  # type: ignore[attr-defined]
    return (*COMMANDS, *parts)


@cache
def parameters(function: str) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a public function or method, with the keywords of its groups of options."""
    own = inspect.signature(public(function)).parameters
    kind = inspect.Parameter.KEYWORD_ONLY
    grouped = {
        each.name: inspect.Parameter(each.name, kind, default=default_of(each), annotation=each.type)
        for group in groups_of(function)
        for each in fields(group)
    }
    return {n: p for n, p in own.items() if n == "settings" or p.kind != p.VAR_KEYWORD} | grouped


def default_of(field: Field[Any]) -> Any:
    """Return the default of a field."""
    return field.default if field.default_factory is MISSING else field.default_factory()


@cache
def groups_of(function: str) -> tuple[type, ...]:
    """Return the groups of options that a function takes as keywords: of its module, or shared ones."""
    code = inspect.unwrap(public(function))
    keywords = keywords_of(code)
    homes = (code.__module__, "modeldyno.profiling.api.options")
    return tuple(
        value
        for value in vars(import_module(code.__module__)).values()
        if is_dataclass(value) and isinstance(value, type) and value.__module__ in homes
        if {each.name for each in fields(value)} <= keywords.keys()
    )


KNOBS = {*PlannedKnobs.__annotations__, *Knobs.__annotations__}


@pytest.mark.parametrize(
    "name", sorted(n for n in public_functions() if keywords_of(inspect.unwrap(public(n))))
)
def test_the_keywords_of_a_function_are_those_of_its_groups(name: str) -> None:
    """With the same types, so that a type checker sees what is taken; the rest are knobs."""
    taken = {each.name: each.type for group in groups_of(name) for each in fields(group)}
    keywords = keywords_of(inspect.unwrap(public(name)))

    assert {word: kind for word, kind in keywords.items() if word in taken or word not in KNOBS} == taken


MOST = 15


@pytest.mark.parametrize("name", sorted(public_functions()))
def test_no_public_function_has_many_parameters(name: str) -> None:
    """Options that belong together are a group, which is declared once for all functions that take it."""
    assert len(inspect.signature(public(name)).parameters) <= MOST


def function_of(name: str) -> str:
    """Return the name of a command's function; empty if it has none."""
    function = FUNCTIONS.get(name, name.replace(" ", "."))
    return function if isinstance(function, str) else ""


def parameter_names(option: click.Parameter) -> set[str]:
    """Return the names that an option may have as a parameter."""
    flags = {flag.lstrip("-").replace("-", "_") for flag in option.opts}
    negated = {flag.removeprefix("no_") for flag in flags if flag.startswith("no_")}
    return {str(option.name), *flags, *negated, *(f"{flag}s" for flag in flags)}


def flag_of(option: click.Parameter) -> str:
    """Return the long flag of an option, or the name of an argument."""
    return next((flag for flag in option.opts if flag.startswith("--")), str(option.name))


PLANNED = {field.name for field in fields(modeldyno.Plan)}


def counterparts(name: str, option: click.Parameter) -> Iterator[At | Nowhere]:
    """Yield where an option of a command is in Python, or why it is nowhere."""
    function, flag = function_of(name), flag_of(option)
    accepted = parameters(function)
    named = parameter_names(option) & set(accepted)
    if (name, flag) in OPTIONS:
        yield OPTIONS[name, flag]
    elif named:
        yield from (At(function, parameter) for parameter in named)
    elif parameter_names(option) & PLANNED and "plan" in accepted:
        yield At(function, "plan")
    elif flag in {"--set", "--batch-size"} and "settings" in accepted:
        yield At(function, "settings")
    elif flag in EVERYWHERE:
        yield EVERYWHERE[flag]


def compared_commands() -> list[str]:
    """Return the commands that have a function."""
    return [name for name in all_commands() if function_of(name)]


@pytest.mark.parametrize("name", all_commands())
def test_every_command_has_a_function(name: str) -> None:
    """It is public, and says in its docstring which command it is; or the table says why there is none."""
    function = function_of(name)
    if not function:
        assert FUNCTIONS[name] != Nowhere("")
        return

    assert function in public_functions()
    assert f"``modeldyno {name}" in (public(function).__doc__ or "")


@pytest.mark.parametrize("name", compared_commands())
def test_every_option_has_a_parameter(name: str) -> None:
    """Each option and argument is a parameter of the same name, or the table says where it is."""
    lacking = [flag_of(option) for option in command(name).params if not list(counterparts(name, option))]

    assert lacking == []


@cache
def left_out(name: str) -> Mapping[str, Any]:
    """Return what a command reads if only what is required is given."""
    arguments: list[str] = []
    for parameter in command(name).params:
        if parameter.required:
            choices = getattr(parameter.type, "choices", (__file__,))
            arguments += (
                [choices[0]] if isinstance(parameter, click.Argument) else [parameter.opts[-1], "x.html"]
            )
    return command(name).make_context(name, arguments, **cli.context_settings).params


@pytest.mark.parametrize("name", compared_commands())
def test_an_option_and_its_parameter_have_one_default(name: str) -> None:
    """What is left out means the same on the command line and in Python."""
    accepted = parameters(function_of(name))
    options = {p.name for p in command(name).params if isinstance(p, click.Option) and not p.required}
    shared = options & accepted.keys() & left_out(name).keys() - SAID_OTHERWISE.keys()

    assert {word: left_out(name)[word] or None for word in shared} == {
        word: accepted[word].default or None for word in shared
    }


@pytest.mark.parametrize(("name", "plan"), [("compare", schedule.PLAN), ("advise", api_advise._PLAN)])
def test_a_command_measures_as_carefully_as_its_function(name: str, plan: modeldyno.Plan) -> None:
    """Its own defaults of time and precision are those of the Python API."""
    options = {**left_out(name), "max_time": left_out(name)["run_time"]}

    assert options_action.plan_from_options(options) == plan


@pytest.mark.parametrize("name", compared_commands())
def test_what_the_table_names_is_there(name: str) -> None:
    """A function or parameter that the table points to exists."""
    for option in command(name).params:
        for place in counterparts(name, option):
            if isinstance(place, At):
                assert place.parameter in parameters(place.function), (flag_of(option), place)
                assert inspect.isfunction(public(place.function))


@pytest.mark.parametrize("function", [*map(function_of, compared_commands()), *COMPANIONS])
def test_every_parameter_has_an_option(function: str) -> None:
    """A function asks for nothing that the command line cannot say, but for what the table names."""
    homes = {function_of(name): name for name in compared_commands()} | COMPANIONS
    name = homes[function]
    covered = {"settings"} if any(flag_of(option) == "--set" for option in command(name).params) else set()
    for option in command(name).params:
        covered |= parameter_names(option)
        places = (at for at in counterparts(name, option) if isinstance(at, At))
        covered |= {at.parameter for at in places if at.function == function or function in COMPANIONS}

    assert sorted(set(parameters(function)) - covered - ONLY_PYTHON.keys()) == []


def test_every_public_function_is_known() -> None:
    """It is that of a command, a part of one, or the table says what it is."""
    covered = {*map(function_of, compared_commands()), *COMPANIONS, *MORE_FUNCTIONS}

    assert public_functions() - covered == set()
    assert covered - public_functions() == set()


def test_no_entry_of_the_tables_is_left_over() -> None:
    """Each names a command and an option that exist."""
    existing = {(name, flag_of(option)) for name in all_commands() for option in command(name).params}

    assert FUNCTIONS.keys() - set(all_commands()) == set()
    assert OPTIONS.keys() - existing == set()
    assert EVERYWHERE.keys() - {flag for _, flag in existing} == set()
    assert ONLY_PYTHON.keys() - {p for name in public_functions() for p in parameters(name)} == set()


@pytest.mark.parametrize(
    ("add", "lacking"),
    [(click.Option(["--new-word"]), True), (click.Option(["--metric"]), False)],
)
def test_a_new_option_without_a_parameter_is_seen(add: click.Option, lacking: bool) -> None:
    """The walk finds an option that was added to a command alone."""
    assert (not list(counterparts("trend", add))) is lacking
