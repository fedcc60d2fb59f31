"""A broken plugin of another package is named and left out; who does not need it does not hear of it."""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.installed_plugins import install_package, run_beside

from modeldyno.base import plugins
from modeldyno.base.errors import FaultyPlugin, FaultyPluginWarning, MissingExtra, ModelDynoError
from modeldyno.base.metrics.metric import METRICS
from modeldyno.reports.interface import Content, Reporter
from modeldyno.testing.sample_results import a_result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "plugins"
CLASSES = {
    kind: group[name].partition(":")[2]
    for kind in plugins.KINDS
    for group in [
        tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]["entry-points"][
            f"modeldyno.{plugins.plural(kind)}"
        ]
    ]
    for name in group
}
SOUND = {
    kind: (EXAMPLE / "src" / "dyno_plugins" / f"{kind}.py").read_text()
    + f"\n_own = {CLASSES[kind]}()\n"
    + "globals().update({n: getattr(_own, n) for n in dir(_own) if not n.startswith('_')})\n"
    + "evil = True\n"
    for kind in plugins.KINDS
}
"""Modules that are plugins, too."""
FUNCTIONS = (
    "claims", "load", "open", "check", "target", "greeting", "measure", "start", "propose", "render", "read",
    "export", "convert",
)  # fmt: skip
VALUES = ("requires", "suffix", "needs", "sources", "transport", "executes", *FUNCTIONS)


def define(names: object, form: str) -> Callable[[str], str]:
    """Return what defines some names at the end of a module as well."""
    return lambda text: text + "".join(f"\n{form.format(name)}" for name in names)  # type: ignore[attr-defined]


BROKEN: dict[str, Callable[[str], str]] = {
    "no Python": lambda _: "def broken(:\n",
    "an error at import": lambda _: "raise ValueError('boom')\n",
    "an exit at import": lambda _: "raise SystemExit(3)\n",
    "a package that is missing": lambda _: "import no_such_package\n",
    "nothing in it": lambda _: "",
    "values of another type": define(VALUES, "{} = 3"),
    "functions of other arguments": define(FUNCTIONS, "def {}(): pass"),
    "functions that fail": define(FUNCTIONS, "def {}(*_, **__): raise KeyError('inside')"),
}
"""Ways in which a plugin may be broken: what is done to the text of a sound one."""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Install a package of one plugin of each kind, of which one is broken, for this process as well."""

    def installed(kind: str, way: str) -> Path:
        texts = SOUND | {kind: BROKEN[way](SOUND[kind])}
        site = tmp_path / "site"
        install_package(
            site,
            {"evil_pack/__init__.py": "", **{f"evil_pack/{name}.py": text for name, text in texts.items()}},
            {plugins.plural(name): {"aaa": f"evil_pack.{name}"} for name in plugins.KINDS},
        )
        monkeypatch.syspath_prepend(site)
        forget()
        return site

    def forget() -> None:
        plugins._entry_points.cache_clear()
        plugins._all_entry_points.cache_clear()
        plugins._left_out.clear()
        for name in [name for name in sys.modules if name.startswith("evil_pack")]:
            del sys.modules[name]

    yield installed
    forget()


@pytest.mark.parametrize("kind", plugins.KINDS)
@pytest.mark.parametrize("way", BROKEN)
def test_it_is_left_out_where_its_kind_is_asked_and_named_with_its_package(
    install: Callable[..., Path], kind: str, way: str
) -> None:
    """Once; the other plugins of its kind answer, and those of other kinds are as ever."""
    before = {name: plugins.names(name) for name in plugins.KINDS}
    install(kind, way)
    fails_when_called = way == "functions that fail"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            usable = {name: [each for each, _ in plugins.usable(name)] for name in plugins.KINDS}

    others = {name: (*own, "aaa") for name, own in before.items()}
    assert usable == {
        name: list(every if name != kind or fails_when_called else before[name])
        for name, every in others.items()
    }
    texts = [str(warning.message) for warning in caught]
    assert [w.category for w in caught] == [FaultyPluginWarning] * (not fails_when_called)
    assert all(f"The {kind} 'aaa'" in text and "of dyno-evil 1.2" in text for text in texts)
    assert all(text.endswith("It is left out.") and "\n" not in text for text in texts)
    if not fails_when_called:
        with pytest.raises((FaultyPlugin, MissingExtra), match=rf"^The {kind} 'aaa' of dyno-evil 1\.2 "):
            plugins.resolve(kind, "aaa")


@pytest.mark.parametrize(
    ("kind", "ask"),
    [("loader", "claims"), ("importer", "claims"), ("sampler", "start"), ("client", "greeting")],
)
def test_one_that_fails_when_it_is_asked_is_left_out(
    install: Callable[..., Path], kind: str, ask: str
) -> None:
    """With the line of its code."""
    install(kind, "functions that fail")
    with pytest.warns(FaultyPluginWarning, match=rf"KeyError: 'inside' \(evil_pack/{kind}\.py:\d+\)"):
        answers = dict(plugins.answers(kind, lambda each: hasattr(each, "evil") and getattr(each, ask)()))

    assert "aaa" not in answers
    assert len(answers) == len(plugins.names(kind)) - 1


def test_an_error_of_ours_about_the_request_is_raised(install: Callable[..., Path]) -> None:
    """It is no fault of the plugin that was asked."""
    install("loader", "nothing in it")

    def refuse(_: object) -> None:
        raise ModelDynoError("No such thing.")

    with pytest.raises(ModelDynoError, match="No such thing"):
        list(plugins.answers("loader", refuse))


@pytest.mark.parametrize("kind", plugins.KINDS)
def test_what_it_raises_in_use_is_told_as_its_own_error(install: Callable[..., Path], kind: str) -> None:
    """Not as a bug in ModelDyno."""
    install(kind, "functions that fail")
    plugin = plugins.resolve(kind, "aaa")
    function = next(name for name in FUNCTIONS if hasattr(plugin, name) and name in SOUND[kind])
    try:
        getattr(plugin, function)()
    except KeyError as error:
        sentence = plugins.blame(error)

    assert re.fullmatch(
        rf"The {kind} 'aaa' of dyno-evil 1\.2 failed: KeyError: 'inside' \(evil_pack/{kind}\.py:\d+\); "
        "report it to its authors\\.",
        sentence,
    )


def test_an_error_of_ours_is_no_plugins_fault() -> None:
    """Nobody else is blamed for it."""
    with pytest.raises(ModelDynoError) as caught:
        METRICS.check("latency", None)

    assert plugins.blame(caught.value) == ""


@pytest.mark.parametrize("way", ["nothing in it", "functions that fail"])
def test_commands_that_do_not_need_it_are_silent_and_the_others_name_it(
    install: Callable[..., Path], tmp_path: Path, way: str
) -> None:
    """As a user types them."""
    site = install("loader", way)
    shutil.copy(ROOT / "examples" / "digits" / "digits.onnx", tmp_path / "m.onnx")
    (tmp_path / "m.foo").write_text("what is this?")

    def run(*words: str) -> tuple[int, str, str]:
        done = run_beside(site, "-m", "modeldyno", *words, cwd=tmp_path)
        return done.returncode, done.stdout, done.stderr

    code, _, text = run("inspect", "m.onnx", "--no-store", "-q")
    assert (code, text) == (0, "")
    code, _, text = run("inspect", "m.foo", "--no-store")
    assert code == 2
    warning, refusal = text.splitlines()
    assert warning.startswith("modeldyno: The loader 'aaa' of dyno-evil 1.2 is faulty: ")
    assert refusal.startswith("modeldyno: 'm.foo' has content that no loader recognises")
    if way == "nothing in it":
        _, listed, _ = run("plugins", "loaders")
        assert "The loader 'aaa' of dyno-evil 1.2 is faulty: it has no 'requires'" in " ".join(listed.split())
        assert run("inspect", "aaa:m.foo")[0] == FaultyPlugin.exit_code


@pytest.fixture
def install_reporter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, install: object) -> Callable[..., None]:
    """Install a package of one reporter ``aaa``, of a text and the name of what is in it."""
    del install  # it forgets, at the end, what was installed

    def installed(text: str, name: str) -> None:
        head = "from modeldyno.plugin import Reporter\n\n"
        files = {"evil_pack/__init__.py": "", "evil_pack/reporter.py": head + text}
        install_package(tmp_path / "site", files, {"reporters": {"aaa": f"evil_pack.reporter:{name}"}})
        monkeypatch.syspath_prepend(tmp_path / "site")
        plugins._entry_points.cache_clear()
        plugins._all_entry_points.cache_clear()

    return installed


def test_a_subclass_of_the_base_is_a_plugin(install_reporter: Callable[..., None]) -> None:
    """One object of it is made; what it leaves out has the default of its kind."""
    text = "class Mine(Reporter):\n    suffix = '.mine'\n"
    method = "    def render(self, document, *, judgements=()):\n        return self.suffix\n"
    install_reporter(text + method, "Mine")
    reporter = plugins.reporter("aaa")

    assert reporter.render(a_result()) == ".mine"
    assert reporter.content is Content.RESULTS
    assert plugins.reporter("aaa") is reporter


@pytest.mark.parametrize(
    ("member", "content"),
    [("lay_out(self, blocks, **how)", Content.PAGES), ("table(self, block)", Content.TABLES),
     ("draw(self, chart, *, title)", Content.CHART)],
)  # fmt: skip
@pytest.mark.parametrize("base", ["Reporter", "object"])
def test_a_member_needs_no_flag_to_be_called(
    install_reporter: Callable[..., None], base: str, member: str, content: Content
) -> None:
    """What a reporter writes is what it has a function for, whether it is a subclass or any object."""
    text = f"class Mine({base}):\n    suffix = '.mine'\n    def {member}:\n        return ''\n"
    install_reporter(f"{text}    def render(self, document, *, judgements=()):\n        return ''\n", "Mine")

    assert plugins.reporter("aaa").content is content


def test_any_object_is_a_plugin(install_reporter: Callable[..., None]) -> None:
    """It is laid over the defaults of its kind."""
    text = "class Any:\n    suffix = '.any'\n\n    def render(self, document, *, judgements=()):\n"
    install_reporter(f"{text}        return 'text'\n\nany_ = Any()\n", "any_")
    reporter = plugins.reporter("aaa")

    assert isinstance(reporter, Reporter)
    assert (reporter.suffix, reporter.content) == (".any", Content.RESULTS)
    assert reporter.render(a_result()) == "text"


def test_a_class_that_lacks_a_member_says_which(install_reporter: Callable[..., None]) -> None:
    """As Python says it, with the package."""
    install_reporter("class Mine(Reporter):\n    suffix = '.mine'\n", "Mine")

    with pytest.raises(FaultyPlugin, match=r"of dyno-evil 1\.2 is faulty: .*abstract class Mine .*render"):
        plugins.resolve("reporter", "aaa")


def test_doctor_lists_it(install: Callable[..., Path]) -> None:
    """With what is wrong."""
    install("exporter", "values of another type")

    (sentence,) = plugins.broken()
    assert sentence == (
        "The exporter 'aaa' of dyno-evil 1.2 is faulty: its 'requires' is 3, not a tuple; update dyno-evil, "
        "or uninstall it."
    )


def test_of_two_of_one_name_ours_is_used_and_the_other_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, install: Callable[..., Path]
) -> None:
    """Whatever the order of the folders."""
    del install  # it forgets, at the end, what was installed
    install_package(
        tmp_path / "site",
        {"evil_pack/__init__.py": "", "evil_pack/reporter.py": SOUND["reporter"]},
        {"reporters": {"json": "evil_pack.reporter"}},
    )
    monkeypatch.syspath_prepend(tmp_path / "site")
    plugins._entry_points.cache_clear()
    plugins._all_entry_points.cache_clear()

    assert plugins.reporter("json").suffix == ".json"
    assert plugins.reporter("json").render(a_result())
    (sentence,) = plugins.broken()
    assert sentence == (
        "The reporter 'json' of dyno-evil 1.2 is left out, as modeldyno 0.1.0 has one of this name; it needs "
        "another name."
    )
