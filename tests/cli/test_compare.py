"""The command ``compare``."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno.base import codec, plugins
from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.result.result import Environment
from modeldyno.comparison import codec as codec_comparison
from modeldyno.comparison.change.comparison import ChangeVerdict
from modeldyno.profiling.run import JudgedResult as Measured
from modeldyno.testing.sample_results import a_failed_result, a_result

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from modeldyno.base.result.result import Result
    from modeldyno.profiling.request import Request

OLD, NEW, ALIKE = "a" * 12, "b" * 12, "c" * 12


def measured(identifier: str, latency: float, **changes: Any) -> Result:
    """Make the Result of five processes."""
    random = np.random.default_rng(1)
    runs = [latency * luck * (1 + random.normal(0, 1e-3, 60)) for luck in (1.0, 1.001, 0.999, 1.002, 0.998)]
    result = (
        Measurement(metric="latency", value=Distribution.of(*runs)),
        Measurement(metric="parameters", value=100),
    )
    return a_result(name=f"m{identifier[0]}", id=identifier, **({"measurements": result} | changes))


@pytest.fixture
def stored(modeldyno: Callable[..., Any]) -> Callable[..., Any]:
    """The command line, with results in its store."""
    with plugins.store() as store:
        for result in (measured(OLD, 1.0), measured(NEW, 1.2), measured(ALIKE, 1.001)):
            store.put(result, headline="")
    return modeldyno


def test_what_needs_trust_asks_for_it_first(modeldyno: Callable[..., Any], tmp_path: Path) -> None:
    """Nothing is announced of a comparison that cannot begin, whichever side it is."""
    (tmp_path / "net.joblib").write_bytes(b"\x80\x04")
    for baseline in ("net.joblib", "call:modeldyno.testing.known_latency:steady"):
        result = modeldyno("compare", baseline, "net.joblib")

        assert result.code == 2
        assert result.out == ""
        assert result.err.startswith("modeldyno: 'net.joblib' is a pickle, which runs code")


def test_stored_results_are_compared_and_it_informs(stored: Callable[..., Any], tmp_path: Path) -> None:
    """Results are found by id; the document is written, and the exit code is 0."""
    result = stored("compare", OLD[:6], NEW[:6], "--json", "c.json")

    assert result.code == 0
    assert result.out.startswith("mb is worse than ma: latency.p50 20.0% higher (")
    assert "not-in-turns" in result.out
    assert max(map(len, result.out.splitlines())) <= 80
    comparison = codec_comparison.read(tmp_path / "c.json")
    assert comparison.contrasts[0].outcome is ChangeVerdict.WORSE


def test_a_script_can_have_it_fail(stored: Callable[..., Any]) -> None:
    """1 if worse, 5 if undecided, 0 if the same."""
    worse = stored("compare", OLD, NEW, "--fail-on", "worse", "--quiet")
    same = stored("compare", OLD, ALIKE, "--fail-on", "worse", "-q")
    unknown = stored("compare", OLD, ALIKE, "--fail-on", "worse", "-q", "--metric", "latency.p99")

    assert [result.code for result in (worse, same, unknown)] == [1, 0, 5]
    assert len(same.out.splitlines()) == 1
    assert same.out.startswith("mc performs the same as ma: latency.p50 within 3.0%.")


def test_what_matters_can_be_told(stored: Callable[..., Any]) -> None:
    """The threshold applies to all metrics, or to one."""
    assert "performs the same" in stored("compare", OLD, NEW, "--smallest", "30%").out
    assert "performs the same" in stored("compare", OLD, NEW, "--smallest", "latency=30%").out
    wrong = stored("compare", OLD, NEW, "--smallest", "quick=1%")
    assert (wrong.code, "quick" in wrong.err) == (2, True)


def test_several_candidates_have_a_table(stored: Callable[..., Any]) -> None:
    """The output names the reference."""
    result = stored("compare", OLD, NEW, ALIKE)

    assert result.out.startswith("Compared with ma, mb is worse and mc is the same.")
    assert "ma (reference)" in result.out


def test_unlike_hardware_is_refused_unless_forced(stored: Callable[..., Any], tmp_path: Path) -> None:
    """With --force it is a doubt."""
    other = measured("d" * 12, 1.2, environment=Environment(hardware={"cores": 64}))
    codec.write(tmp_path / "other.json", codec.encode(other))

    refused = stored("compare", OLD, "other.json")
    forced = stored("compare", OLD, "other.json", "--force")

    assert refused.code == 2
    assert "unlike hardware" in refused.err
    assert len(refused.err.strip().splitlines()) == 1
    assert forced.code == 0
    assert "unlike-hardware" in forced.out


def test_a_document_is_shown_and_reported_again(stored: Callable[..., Any], tmp_path: Path) -> None:
    """A stored comparison gives the same document, numbers and page."""
    first = stored("compare", OLD, NEW, "--json", "c.json", "-o", "c.csv")

    assert stored("show", "c.json").out == first.out.replace("Saved to c.json and c.csv.\n", "")
    document = codec_comparison.decode(stored("show", "c.json", "--json").out)
    assert document == codec_comparison.read(tmp_path / "c.json")
    assert (tmp_path / "c.csv").read_text().splitlines()[1].startswith("mb,latency.p50,s,worse,")
    assert stored("report", "c.json", "-o", "c.html").code == 0
    assert (tmp_path / "c.html").read_text().startswith("<!doctype html>")
    assert stored("report", "c.json", "-o", "c.md").code == 0
    refused = stored("show", "c.json", "--get", "latency.p50")
    assert (refused.code, "this is a comparison" in refused.err) == (2, True)


def test_the_document_can_go_to_standard_output(stored: Callable[..., Any]) -> None:
    """With --json - nothing else goes to standard output."""
    result = stored("compare", OLD, NEW, "--json", "-")

    assert codec_comparison.decode(result.out).contrasts[0].candidate.id == NEW


def test_what_failed_has_nothing_to_compare(stored: Callable[..., Any], tmp_path: Path) -> None:
    """The failure is reported, with the exit code of a failed run."""
    codec.write(tmp_path / "failed.json", codec.encode(replace(a_failed_result(), id="e" * 12)))

    result = stored("compare", OLD, "failed.json")

    assert result.code == 4
    assert "The child took 2 GiB." in result.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing", "nowhere"), "nothing"),
        ((OLD, NEW, "-o", "c.doc"), "c.doc"),
        ((OLD, NEW, "--min-rounds", "0"), "--min-rounds"),
        ((OLD, NEW, "--metric", "speed"), "speed"),
        ((OLD, NEW, "--set", "a=1", "--candidate-set", "a=2"), "a is set for both sides and for one of them"),
        ((OLD, NEW, "--json", "absent/c.json"), "absent"),
    ],
)
def test_a_wrong_request_is_one_sentence(
    stored: Callable[..., Any], arguments: tuple[str, ...], message: str
) -> None:
    """Nothing is measured."""
    result = stored("compare", *arguments)

    assert (result.code, message in result.err) == (2, True)
    assert result.out == ""


@pytest.mark.slow  # test_interleaved.py measures in slices
@pytest.mark.timeout(300)
def test_one_model_is_compared_with_itself_at_other_knobs(
    modeldyno: Callable[..., Any], tmp_path: Path
) -> None:
    """Both are run in turns; their outputs agree; the results are in the store."""
    pytest.importorskip("onnxruntime")
    from tests.support.tiny_onnx import mlp

    path = str(mlp(tmp_path))

    result = modeldyno(
        "compare", path, path, "--candidate-set", "graph_optimization=disable", "--set", "threads=1",
        "--min-rounds", "2", "--max-rounds", "2", "--run-time", "0.2s", "--min-time", "0.05s",
        "--json", "c.json", "--probe", "latency",
    )  # fmt: skip

    assert result.code == 0, result.err
    comparison = codec_comparison.read(tmp_path / "c.json")
    assert comparison.sequence == (0, 1, 1, 0)
    assert comparison.baseline.processes == 2
    assert [each.name for each in comparison.contrasts[0].settings] == ["graph_optimization"]
    (agreement,) = comparison.contrasts[0].outputs
    assert agreement.output == "y"
    assert agreement.largest < 1e-4
    assert "interleaved in short slices: A B B A" in result.out
    with plugins.store() as store:
        assert {entry.id for entry in store.find()} == {
            comparison.baseline.id,
            comparison.contrasts[0].candidate.id,
        }
    again = modeldyno("compare", comparison.baseline.id, comparison.contrasts[0].candidate.id)
    assert again.code == 0


def test_a_file_that_is_not_there_is_told_as_one(modeldyno: Callable[..., Any]) -> None:
    """The message for a path mentions the file, not only the store."""
    result = modeldyno("compare", "nothing.onnx", "nothing.onnx")

    assert result.code == 2
    assert "There is no file, stored id or tag 'nothing.onnx'" in result.err


@pytest.mark.parametrize("command", ["compare", "inspect"])
def test_one_side_may_be_given_inputs_of_its_own(
    command: str, modeldyno: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inputs of one side are added to the common ones; their names may differ."""
    received: list[Request] = []

    def both(requests: list[Request], **_more: object) -> None:
        received.extend(requests)
        raise RequestError("enough")

    def each(request: Request, **_more: object) -> Measured:
        received.append(request)
        if len(received) == len(models):
            raise RequestError("enough")
        return Measured(result=a_result())

    monkeypatch.setattr("modeldyno.cli.actions.compare.resolve_operands", both)
    monkeypatch.setattr("modeldyno.cli.actions.inspect.run_request", each)
    models = ("call:modeldyno.testing.known_latency:steady",) * 2
    arguments = models if command == "compare" else (models[0], "--compare", models[1])
    own = ("--baseline-input", "x=1x8", "--candidate-input", "y=1x8", "--input", "mask=1x4")

    assert modeldyno(command, *arguments, *own).err == "modeldyno: enough\n"
    assert [getattr(r, "request", r).inputs for r in received] == [
        ("mask=1x4", "x=1x8"),
        ("mask=1x4", "y=1x8"),
    ]
    assert "need two models; name the second one" in modeldyno("inspect", models[0], *own[:2]).err


def test_a_quick_look_answers_at_once(modeldyno: Callable[..., Any], tmp_path: Path) -> None:
    """Two functions, whose times differ by a factor of 3, in ten seconds, and with few lines."""
    (tmp_path / "two.py").write_text(
        "from time import sleep\n\n\ndef short():\n    sleep(0.002)\n\n\ndef long():\n    sleep(0.006)\n"
    )
    result = modeldyno("compare", "call:two.py:short", "call:two.py:long", "--quick", "--max-rounds", "3")
    first = " ".join(result.out.partition("\n\n")[0].split())
    ratio = float(re.findall(r"[\d.]+(?= (?:±|times))", first)[0])

    assert result.code == 0, result.err
    assert 2.4 < ratio < 3.3
    assert first.startswith(("two.long is", "two.long took", "two.long may"))
    assert len(result.out.splitlines()) < 15
    assert "within 10 s" in result.err
