"""Documents from Python: what the commands on saved documents do, as functions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import modeldyno
from modeldyno.base.errors import RequestError
from modeldyno.base.job.load_spec import Load
from modeldyno.base.metrics.constraints import Verdict
from modeldyno.base.metrics.measurement import Distribution, Measurement, observed_number
from modeldyno.comparison import pr_comment
from modeldyno.testing.sample_results import a_job, a_small_result

if TYPE_CHECKING:
    from modeldyno.base.result.result import Result

FOREIGN = Path(__file__).parents[1] / "exchange" / "importers" / "golden"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a separate store."""
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path / 'store.db'}")


def measured(seconds: float = 0.005, identifier: str = "abc123def456") -> Result:
    """Make a Result of a load of 200/s."""
    runs = [[seconds * (1 + 1e-4 * (17 * n % 40)) for n in range(200)]] * 5
    measurements = (
        Measurement(metric="latency", value=Distribution.of(*runs)),
        observed_number("request_rate", 200.0),
    )
    job = replace(a_job(), load=Load(concurrency=1, duration=5.0))
    return a_small_result(id=identifier, job=job, measurements=measurements)


def test_what_is_stored_is_listed_tagged_shown_and_removed() -> None:
    """A Result or its id stands for it; what is removed is not found any more."""
    result = measured()
    modeldyno.store.add(result)

    assert modeldyno.store.tag(result, ["@main", "look"]).tags == ("@main", "look")
    assert [entry.id for entry in modeldyno.store.list(tag="look")] == [result.id]
    assert modeldyno.store.tag(result.id[:6], "look", remove=True).tags == ("@main",)
    assert modeldyno.store.list(name="another") == ()
    assert [entry.id for entry in modeldyno.store.list(where="latency.p50 < 20ms")] == [result.id]
    assert modeldyno.store.list(where="latency.p50 > 20ms or failed") == ()
    assert modeldyno.store.show("@main") == result
    (removed,) = modeldyno.store.rm(result.id)
    assert (removed.id, removed.baselines) == (result.id, ("@main",))
    assert modeldyno.store.list() == ()
    with pytest.raises(RequestError, match="limit of 1 or more"):
        modeldyno.store.list(limit=0)


def test_nothing_is_removed_if_one_name_is_wrong() -> None:
    """All names are looked up first."""
    modeldyno.store.add(measured())

    with pytest.raises(RequestError):
        modeldyno.store.rm(["abc123", "absent"])

    assert len(modeldyno.store.list()) == 1


def test_a_report_takes_documents_files_and_ids(tmp_path: Path) -> None:
    """One document or several; bounds are those of one Result."""
    first, second = measured(), measured(0.006, "fed654cba321")
    modeldyno.store.add(first)
    modeldyno.save(second, tmp_path / "second.json")

    assert modeldyno.report(first, tmp_path / "a.html", require="latency.p50 <= 1ms") == tmp_path / "a.html"
    modeldyno.report([first.id, tmp_path / "second.json"], tmp_path / "both.json")

    assert "latency.p50 &lt;= 1 ms" in (tmp_path / "a.html").read_text()
    assert [row["id"] for row in json.loads((tmp_path / "both.json").read_text())] == [first.id, second.id]
    with pytest.raises(RequestError, match="require= applies to one result"):
        modeldyno.report([first, second], tmp_path / "b.html", require="latency.p50 <= 1ms")
    with pytest.raises(RequestError, match="A report needs a document"):
        modeldyno.report([], tmp_path / "b.html")


def test_a_report_of_a_chart_is_a_picture(tmp_path: Path) -> None:
    """A chart that is not there is refused in the words of Python."""
    pytest.importorskip("matplotlib")
    written = modeldyno.report(measured(), tmp_path / "out.png", chart="latency")

    assert written.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(RequestError, match=r"chart= is for \.svg and \.png"):
        modeldyno.report(measured(), tmp_path / "out.md", chart="latency")


def test_an_export_checks_every_place_first(tmp_path: Path) -> None:
    """A Result or its id goes to each place; a wrong place leaves nothing written."""
    modeldyno.store.add(measured())
    good = f"prometheus:{tmp_path / 'a.prom'}"

    with pytest.raises(RequestError, match="absent"):
        modeldyno.export(measured(), [good, "absent:b"])
    assert not (tmp_path / "a.prom").exists()
    assert len(modeldyno.export("abc123", good)) == 1
    assert "modeldyno_latency_seconds" in (tmp_path / "a.prom").read_text()
    comparison = modeldyno.compare(measured(), measured(0.006, "fed654cba321"))
    with pytest.raises(RequestError, match="is a comparison"):
        modeldyno.export(comparison, good)  # type: ignore[arg-type]


def test_measurements_of_other_tools_are_imported() -> None:
    """They are stored with their tags, and the same file gives the same ids."""
    file = FOREIGN / "vllm_plain.json"
    results = modeldyno.store.import_results(file, tags="foreign")

    assert results == modeldyno.store.import_results(file, tool="vllm", store=False)
    assert {entry.id for entry in modeldyno.store.list(tag="foreign")} == {result.id for result in results}
    with pytest.raises(RequestError, match="is not a file of aiperf"):
        modeldyno.store.import_results(file, tool="aiperf")


def test_replicas_of_a_result_hold_its_bounds() -> None:
    """A thousand requests take five of 200/s; a broken bound says why the number is unknown."""
    answer = modeldyno.serving.replicas(
        measured(), demand="1000/s", price="1.20/h", require="latency.p50 <= 6ms"
    )
    unknown = modeldyno.serving.replicas(measured(), demand=1000, require="latency.p50 <= 1ms")

    assert answer.provision is not None
    assert answer.provision.replicas == 5
    assert unknown.provision is None
    assert "is unknown" in unknown.why
    with pytest.raises(RequestError, match="Nothing to compute"):
        modeldyno.serving.replicas(measured())


def test_a_check_judges_bounds_and_a_baseline(tmp_path: Path) -> None:
    """The report has the verdict, and is written in the formats of pipelines."""
    modeldyno.store.add(measured(), tags="@main")
    slow = measured(0.010, "fed654cba321")

    assert modeldyno.check(slow, require="latency.p50 <= 20ms").verdict is Verdict.HELD
    assert modeldyno.check(slow, require="latency.p50 <= 1ms").verdict is Verdict.BROKEN
    report = modeldyno.check(slow, baseline="@main", max_regression="5%", metrics="latency.p50")
    assert report.verdict is Verdict.BROKEN
    for name, begin in (("a.xml", "<?xml"), ("a.sarif", "{"), ("a.md", "<!--")):
        modeldyno.save(report, tmp_path / name)
        assert (tmp_path / name).read_text().startswith(begin)
    with pytest.raises(RequestError, match=r"No reporter writes 'a\.docx'"):
        modeldyno.save(report, tmp_path / "a.docx")
    with pytest.raises(RequestError, match="Nothing to check"):
        modeldyno.check(slow)
    with pytest.raises(RequestError, match="need a baseline"):
        modeldyno.check(slow, require="latency.p50 <= 1ms", metrics="latency")


def test_a_comment_takes_a_report_or_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both post the same text."""
    posted: list[str] = []

    def keep(text: str, _thread: object) -> str:
        posted.append(text)
        return "posted it"

    monkeypatch.setattr(pr_comment.CommentThread, "of", lambda _environment: None)
    monkeypatch.setattr(pr_comment, "post_comment", keep)
    report = modeldyno.check(measured(), require="latency.p50 <= 20ms")
    modeldyno.save(report, tmp_path / "comment.md")

    assert modeldyno.comment(report) == modeldyno.comment(tmp_path / "comment.md") == "posted it"
    assert posted[0] == posted[1]


def test_plugins_schemas_and_findings_are_values() -> None:
    """What the commands print is returned."""
    assert {row.kind for row in modeldyno.plugins.list()} >= {"loader", "backend", "probe"}
    assert {row.kind for row in modeldyno.plugins.list("probes")} == {"probe"}
    assert all(row.knob is not None for row in modeldyno.plugins.list("onnxruntime"))
    assert "latency" in {row.name for row in modeldyno.plugins.list("metrics")}
    with pytest.raises(RequestError, match="probs"):
        modeldyno.plugins.list("probs")
    assert "$defs" in modeldyno.schema()
    assert "properties" in modeldyno.schema("sweep")
    with pytest.raises(RequestError, match="no schema of 'study'"):
        modeldyno.schema("study")
    assert isinstance(modeldyno.store.findings(measured()), tuple)
