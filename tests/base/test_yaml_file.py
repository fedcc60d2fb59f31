"""A sweep in a file: what is read of YAML, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.yaml_file import FileConfig, parse_yaml_text, read_yaml_file

if TYPE_CHECKING:
    from pathlib import Path

TYPES = (
    "python/object:os.system", "python/object/new:subprocess.Popen", "python/object/apply:os.system",
    "python/object/apply:subprocess.check_output", "python/object/apply:builtins.eval",
    "python/name:os.system", "python/name:builtins.exec", "python/module:os", "python/module:subprocess",
    "python/tuple", "python/list",
    "python/dict", "python/str", "python/bytes", "python/complex", "python/none", "python/bool", "python/int",
    "python/long", "python/float", "python/unicode", "binary", "timestamp", "set", "omap", "pairs", "merge",
    "value", "str", "int", "float", "bool", "null", "map", "seq", "yaml",
)  # fmt: skip
PAYLOADS = (
    *(f"!!{name} x" for name in TYPES),
    "!!python/object/apply:os.system ['touch pwned']",
    "!!python/object/new:type {args: [z, [], {}]}",
    "!!python/object/apply:os.popen [id]",
    "!<tag:yaml.org,2002:python/object/apply:os.system> [ls]",
    "!<!local> x",
    "!local x",
    "!!map {a: b}",
    "[!!python/object/apply:os.system [ls]]",
    "{a: !!python/name:os.system ''}",
    "!include /etc/passwd",
    "!ruby/object:Gem::Installer {i: x}",
    "!!javax.script.ScriptEngineManager [x]",
    "! x: !y z",
    "!!python/object/apply:builtins.open [pwned, w]",
)


@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
def test_a_tag_is_refused_with_its_line(
    payload: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tags are refused whatever they stand for, and never executed."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RequestError, match=r"^s.yaml, line 2: the tag .* is not supported"):
        parse_yaml_text(f"model: m.onnx\nset: {payload}\n", "s.yaml")
    assert list(tmp_path.iterdir()) == []


def test_there_are_fifty_payloads() -> None:
    """The list of refused payloads does not shrink."""
    assert len(set(PAYLOADS)) >= 50


@pytest.mark.parametrize(
    "value", ["off", "on", "yes", "no", "1_000", "1:30", "2026-01-02", "~", "0x10", "1e3"]
)
def test_a_word_is_what_stands_there(value: str) -> None:
    """YAML's own idea of booleans, times and numbers does not apply."""
    assert parse_yaml_text(f"set: {{compile: {value}}}", "s").tree == {"set": {"compile": value}}


def test_every_part_knows_its_line() -> None:
    """Keys, list items and inline mappings have their own line."""
    parsed = parse_yaml_text("# a comment\nmodel: m\nspace:\n  a: [1,\n    2]\n  b: {from: 1}\n", "s.yaml")

    assert parsed.lines["model",] == 2
    assert parsed.lines["space", "a", "1"] == 5
    assert parsed.lines["space", "b", "from"] == 6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &x 1\nb: 2", "line 1: anchors"),
        ("a: 1\nb: *x", "line 2: anchors"),
        ("a: [&x [1], *x]", "anchors"),
        ("a:\n\t- 1", "line 2: this is not YAML.*not with tabs"),
        ("a: [1", "this is not YAML"),
        ("- 1", "is not a mapping"),
        ("", "is not a mapping"),
        ("just words", "is not a mapping"),
        ("a: 1\n---\nb: 2", "line 2: a second document"),
        ("a: 1\nb: 2\na: 3", "line 3: 'a' occurs twice"),
        ("? [1]\n: 2", "a key must be a word"),
        ("a: \x00", "this is not YAML"),
        ("a: " + "{b: " * 50, "more than 8 levels"),
        ("a: " + "[" * 100_000, "more than 8 levels"),
    ],
)
def test_what_is_no_plain_table_is_refused(text: str, message: str) -> None:
    """The message says what is wrong, and in which line."""
    with pytest.raises(RequestError, match=message):
        parse_yaml_text(text, "s.yaml")


def test_a_bomb_of_aliases_is_refused_at_its_first_anchor() -> None:
    """Text that would grow a thousandfold with each line is refused early."""
    lines = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30))]

    with pytest.raises(RequestError, match="line 1: anchors"):
        parse_yaml_text("\n".join(lines), "s.yaml")


def test_a_file_is_read_or_refused_by_its_name(tmp_path: Path) -> None:
    """A file that is missing, too large or not text is refused."""
    good, large, other = (tmp_path / name for name in ("good.yaml", "large.yaml", "other.yaml"))
    good.write_text("model: m.onnx\n")
    large.write_bytes(b"#" * (1 << 20) + b"\n")
    other.write_bytes(b"\xff\xfe\x00")

    assert read_yaml_file(good).tree == {"model": "m.onnx"}
    for path, message in (
        (large, "too many for a configuration"),
        (other, "not text in UTF-8"),
        (tmp_path / "no", "Cannot"),
    ):
        with pytest.raises(RequestError, match=message):
            read_yaml_file(path)


def test_words_of_two_places_are_joined() -> None:
    """The upper configuration overrides: whole for values and lists, part by part for mappings."""
    file = parse_yaml_text("model: a\nplan:\n  seed: 1\n  max_time: 3s\nrequire: [x, y]\n", "s.yaml")
    typed = FileConfig(tree={"plan": {"seed": 2}, "require": ["z"]})
    both = typed.over(file)

    assert both.tree == {"model": "a", "plan": {"seed": 2, "max_time": "3s"}, "require": ["z"]}
    assert both.origin == "s.yaml"
    assert ("plan", "max_time") in both.lines
    assert ("plan", "seed") not in both.lines
    assert not any(place[:1] == ("require",) for place in both.lines)


def test_a_mistake_tells_the_nearest_line() -> None:
    """Within a part of the file its line is added once; elsewhere the message stays unchanged."""
    parsed = parse_yaml_text("model: a\nspace:\n  b: 1\n", "s.yaml")

    with pytest.raises(RequestError) as inner, parsed.at("space"), parsed.at("space", "b", "from"):
        raise RequestError("wrong.")
    with pytest.raises(RequestError) as outer, parsed.at("plan"):
        raise RequestError("wrong.")
    assert str(inner.value) == "s.yaml, line 3: wrong."
    assert str(outer.value) == "wrong."
