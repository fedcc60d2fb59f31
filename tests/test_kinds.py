"""Each kind of document has one row: its JSON is read back, and it is shown by the same four functions."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
import pytest
from tests.support.installed_plugins import install_package, run_beside
from tests.support.sample_explanations import an_explanation
from tests.support.sample_reports import a_large_study, a_measured_comparison

import modeldyno
from modeldyno.base import codec, kinds, plugins
from modeldyno.base.errors import RequestError, UnreadableDocument
from modeldyno.base.report.blocks import Heading, Notice, Severity
from modeldyno.base.views.view_options import ViewOptions
from modeldyno.cli import cli
from modeldyno.testing.reporters import full_result
from modeldyno.testing.sample_conversions import a_conversion
from modeldyno.testing.sample_series import a_capacity, a_comparison, a_ladder, a_trend

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.base.document import Document, StoredDocument

MADE: dict[str, StoredDocument] = {
    "result": full_result(),
    "study": a_large_study(10),
    "ladder": a_ladder(),
    "capacity": a_capacity(),
    "comparison": a_comparison(),
    "conversion": a_conversion(),
    "explanation": an_explanation(),
}
SHOWN: dict[str, Document] = {**MADE, "comparison": a_measured_comparison(), "trend": a_trend()}


def encoded(document: Document, **derived: Any) -> bytes:
    """Encode a document by its kind."""
    return kinds.kind_of(document).encode(document, **derived)


@pytest.mark.parametrize("kind", SHOWN)
def test_every_kind_is_shown_by_the_same_functions(kind: str) -> None:
    """Its blocks begin with its headline, its page has headings, and its numbers are a table."""
    document = SHOWN[kind]
    row = kinds.kind_of(document)
    first = next(iter(row.blocks(document)))
    assert isinstance(first, Notice)

    assert row.name == kind
    assert (first.severity, first.text) == (Severity.VERDICT, row.headline(document))
    assert any(isinstance(block, Heading) for block in row.page(document))
    assert row.numbers(document).columns
    assert row.title(document)
    assert row.brief(document)


def test_every_kind_has_an_example_here() -> None:
    """A kind that is added is tested as the others are."""
    registered = [plugins.resolve(kinds.KIND, name) for name in kinds.names()]
    assert {kind.name for kind in registered if kind.page is not kind.blocks} == SHOWN.keys()


@pytest.mark.parametrize("kind", MADE)
def test_round_trip(kind: str, tmp_path: Path) -> None:
    """No part is lost, including infinite ends; the document has its kind."""
    result = MADE[kind]
    path = tmp_path / "found.json"
    path.write_bytes(encoded(result))

    assert kinds.read(path) == result
    assert json.loads(path.read_text()).get("kind", "result") == kind


@pytest.mark.parametrize("kind", MADE)
def test_python_reads_each_kind_as_what_it_is(kind: str, tmp_path: Path) -> None:
    """One function reads all; a kind that is asked for is the only one that it then accepts."""
    document, path = MADE[kind], tmp_path / "document.json"
    path.write_bytes(encoded(document))
    another = next(type(other) for other in MADE.values() if type(other) is not type(document))

    assert modeldyno.read(path) == modeldyno.read(path, type(document)) == document
    with pytest.raises(RequestError, match=rf"document.json is a {kind}; a {another.__name__} is expected"):
        modeldyno.read(path, another)
    if kind != "result":
        with pytest.raises(UnreadableDocument, match=f"not a ModelDyno result: it is a {kind}"):
            codec.read(path)


def test_what_was_derived_is_ignored_on_reading() -> None:
    """Derived replicas are in the document with the measurements."""
    data = encoded(a_ladder(), provision={"replicas": 3})

    assert json.loads(data)["provision"] == {"replicas": 3}
    assert kinds.decode(data) == a_ladder()


@pytest.mark.parametrize("document", MADE.values(), ids=MADE)
def test_a_later_schema_is_refused(document: StoredDocument) -> None:
    """A document of a later schema is refused."""
    with pytest.raises(UnreadableDocument, match="upgrade ModelDyno"):
        kinds.decode(encoded(replace(document, schema=99)))  # type: ignore[type-var]


def damaged(**changes: Any) -> bytes:
    """Change something in the document of a search."""
    return json.dumps({**json.loads(encoded(a_capacity())), **changes}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b"7",
        b"{",
        b"{}",
        b'{"kind": "study"}',
        b'{"kind": "trend"}',
        b'{"kind": "dream"}',
        b'{"kind": 7}',
        b'{"kind": ["ladder"]}',
        b'{"kind": "ladder"}',
        b'{"kind": "ladder", "schema": "x"}',
        encoded(a_ladder())[:400],
        damaged(rungs=[{"load": "many"}]),
        damaged(rungs=[{"load": 1, "answers": [{"interval": {"low": 1}}]}]),
        damaged(search={"bounds": []}),
        damaged(passed="four"),
        damaged(end="never"),
    ],
)
def test_what_is_none_is_refused_in_one_sentence(data: bytes, tmp_path: Path) -> None:
    """Any file content is read completely, or refused with the file name."""
    path = tmp_path / "odd.json"
    path.write_bytes(data)
    with pytest.raises(UnreadableDocument, match=r"odd\.json") as raised:
        kinds.read(path)

    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("name", "says"), [("gate", "which is not read back"), ("dream", "cannot read")])
def test_what_is_not_read_back_is_told_from_what_is_unknown(name: str, says: str) -> None:
    """The verdict of a gate is ours, although no command reads it; a dream is not."""
    with pytest.raises(UnreadableDocument, match=f"of the kind '{name}', .*{says}"):
        kinds.decode(json.dumps({"kind": name}).encode())


ANOTHER = """
from modeldyno.base.document import Document
from modeldyno.base.document_kind import plain_kind
from modeldyno.base.report.blocks import Notice, Severity
class Menu(Document):
    KIND = "menu"
MENU = plain_kind(Menu, lambda menu: [Notice(severity=Severity.VERDICT, text="soup")], encode=lambda _: b"{}")
"""


@pytest.mark.parametrize(
    ("value", "printed"),
    [("MENU", "soup"), ("Menu", "The document 'menu' of dyno-evil 1.2 is faulty: it is no DocumentKind")],
)
def test_another_package_may_bring_a_kind(tmp_path: Path, value: str, printed: str) -> None:
    """It is printed as ours are; what is no kind is named with its package."""
    install_package(tmp_path, {"menu.py": ANOTHER}, {"documents": {"menu": f"menu:{value}"}})
    done = run_beside(tmp_path, "-c", "import modeldyno, menu; print(menu.Menu())")

    assert printed in done.stdout + done.stderr


def test_no_file_is_a_wrong_request(tmp_path: Path) -> None:
    """The error has the path."""
    with pytest.raises(RequestError, match="Cannot read"):
        kinds.read(tmp_path / "none.json")


def test_a_command_to_repeat_a_side_leaves_out_knobs_at_their_default() -> None:
    """A page of a comparison knows the knobs of the backends, as that of one result does."""
    pair = a_measured_comparison()
    job = replace(pair.baseline.job, backend="onnxruntime", config={"parallel": False, "threads": 1})
    pair = replace(pair, baseline=replace(pair.baseline, job=job))
    page = kinds.kind_of(pair).page(pair, ViewOptions(knobs=plugins.knobs))
    logs = [block.log for block in page if isinstance(block, Notice) and block.log]

    assert any("--set threads=1" in log for log in logs)
    assert not any("parallel" in log for log in logs)


def test_what_is_written_for_other_programs_says_what_it_is(tmp_path: Path) -> None:
    """Reading it back names the command that wrote it; where a result is needed, it says what it is."""
    for document, command in ((a_trend(), "trend"), (modeldyno.verify(full_result()), "verify")):
        path = tmp_path / f"{command}.json"
        path.write_bytes(codec.encode_document(document))
        sentence = rf"what modeldyno {command} --json writes .* Run modeldyno {command}"
        with pytest.raises(UnreadableDocument, match=sentence):
            kinds.read(path)
        with pytest.raises(UnreadableDocument, match="not a ModelDyno result: it is a"):
            codec.read(path)


@pytest.mark.parametrize("name", kinds.names())
def test_each_kind_is_named_as_its_class_says(name: str) -> None:
    """It is found by its class; the command that writes one that is not read back exists."""
    kind = plugins.resolve(kinds.KIND, name)

    assert kind.name == kind.document.KIND == name
    assert kinds.kind_of(kind.document) is kind
    assert (kind.decode is None) == (kind.checks is None)
    assert not kind.command or cli.get_command(click.Context(cli), kind.command)
