"""YAML of other programs: values have types, and nothing in it makes objects or grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.base.test_yaml_file import PAYLOADS

from modeldyno.base.errors import RequestError
from modeldyno.base.yaml_file import read_foreign_yaml
from modeldyno.testing.loaders import is_one_sentence

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = {
    "binary", "timestamp", "set", "omap", "pairs", "str", "int", "float", "bool", "null", "map", "seq",
    "merge", "value",
}  # fmt: skip
"""Tags of YAML itself, which make values."""
BOMB = "\n".join(["a0: &a0 [x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))])


def test_values_have_types_and_anchors_stand_for_them(tmp_path: Path) -> None:
    """Numbers, booleans and lists are what YAML says; an alias repeats what its anchor names."""
    path = tmp_path / "c.yaml"
    path.write_text("a: &x [1, 2.5, true, null]\nb: *x\nc: &y text\nd: *y\n")

    values = [1, 2.5, True, None]
    assert read_foreign_yaml(path) == {"a": values, "b": values, "c": "text", "d": "text"}


@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
def test_no_tag_makes_an_object(payload: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tag of YAML itself makes a value or is refused; any other is refused."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "c.yaml"
    path.write_text(f"set: {payload}\n")
    refusal = ""
    try:
        read_foreign_yaml(path)
    except RequestError as error:
        refusal = str(error)
    makes_a_value = payload.partition(" ")[0].removeprefix("!!") in PLAIN or "!!map" in payload
    assert is_one_sentence(refusal) if refusal else makes_a_value
    assert [file.name for file in tmp_path.iterdir()] == ["c.yaml"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "line 5: more than 10,000 values"),
        ("a: " + "[" * 100_000, "line 1: more than .* levels"),
        ("a: " + "{b: " * 500, "line 1: more than .* levels"),
        ("a: [" + "x, " * 20_000 + "]", "line 1: more than 10,000 values"),
        ("a: &a [*a]", r"line 1: \*a names nothing"),
        ("a: &a\n  <<: *a", r"line 2: \*a names nothing"),
        ("b: *a", r"line 1: \*a names nothing"),
        ("a: 2026-13-45", "cannot be read .*month"),
        ("a: " + "9" * 5000, "cannot be read"),
        ("a: [1", "this is not YAML"),
        ("? [1]\n: 2", "this is not YAML"),
    ],
)
def test_what_no_configuration_is_like_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """The message says what is wrong, and in which line where there is one."""
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(RequestError, match=message):
        read_foreign_yaml(path)
