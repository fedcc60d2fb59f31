"""Files of other load generators, from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from modeldyno.base import codec
from modeldyno.testing.sample_results import a_result

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    class CommandResult(Protocol):
        code: int
        out: str
        err: str


GOLDEN = Path(__file__).parents[1] / "exchange" / "importers" / "golden"


def test_an_import_is_shown_and_kept(modeldyno: Callable[..., CommandResult]) -> None:
    """An import is stored with its tag, and answers queries like any result."""
    result = modeldyno("import", str(GOLDEN / "vllm_closed.json"), "--tag", "theirs")

    assert result.code == 0
    assert "echo generates" in result.out
    assert "from-send" in result.out
    number = modeldyno("show", "theirs", "--get", "time_to_first_token.p50")
    mean = json.loads((GOLDEN / "vllm_closed.json").read_text())["median_ttft_ms"]
    assert float(number.out) == pytest.approx(mean * 1e-3, rel=0.01)


def test_several_loads_are_told_in_a_line_each(
    modeldyno: Callable[..., CommandResult], tmp_path: Path
) -> None:
    """Several loads are listed by id; no report is written for them."""
    file = str(GOLDEN / "perf_analyzer_profile.json")
    result = modeldyno("import", file, "--json", "several.json")

    assert result.code == 0
    assert [line.split()[0] for line in result.out.splitlines()[:2]] == [
        document["id"] for document in json.loads((tmp_path / "several.json").read_text())
    ]
    assert modeldyno("import", file, "-o", "x.html").code == 2


def test_an_import_is_compared_with_a_result_of_ours(modeldyno: Callable[..., CommandResult]) -> None:
    """Its unknown machine is a doubt, but does not prevent a comparison."""
    for name in ("vllm_closed", "vllm_open"):
        assert modeldyno("import", str(GOLDEN / f"{name}.json"), "--tag", name, "-q").code == 0
    result = modeldyno("compare", "vllm_closed", "vllm_open")

    assert result.code in {0, 1, 5}
    assert "service_time.p50" in result.out
    assert "imported" in result.out
    plain = modeldyno("import", str(GOLDEN / "vllm_plain.json"))
    assert "time_to_first_token " in plain.out
    assert "about 99.8 ms" in plain.out


def test_a_figure_is_named_by_its_query(modeldyno: Callable[..., CommandResult]) -> None:
    """A statistic without samples is reported like one with samples, with a note."""
    result = modeldyno("import", str(GOLDEN / "perf_analyzer_levels.csv"), "--json", "-", "--no-store")
    assert result.code == 0
    printed = modeldyno("import", str(GOLDEN / "perf_analyzer_short.csv"), "-o", "out.csv")

    assert "about 1.44 s" in printed.out
    assert "not certified" in printed.out
    assert "answers 32.6 samples/s at concurrency 4 on imported" in printed.out
    rows = Path("out.csv").read_text().splitlines()
    assert any(row.startswith("latency,,p99,1.435222,,,s,1,reported without samples") for row in rows)


def test_bounds_judge_an_import(modeldyno: Callable[..., CommandResult]) -> None:
    """The exit code is that of a gate."""
    file = str(GOLDEN / "guidellm_concurrent.json")

    assert modeldyno("import", file, "--require", "error_rate <= 1%", "-q").code == 0
    assert modeldyno("import", file, "--require", "service_time.p50 <= 1ms", "-q").code == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("no.json",), "Cannot read no.json: No such file or directory."),
        (
            ("other.json",),
            "a known load generator (aiperf, guidellm, loadgen, perf_analyzer, vllm)",
        ),
        (("other.json", "--from", "vllm"), "other.json is not a file of a known load generator"),
        (
            ("bare.json", "--from", "vllm"),
            "not a file of vllm, but of perf_analyzer; import it as that",
        ),
        (("empty.json",), "empty.json is empty; copy it again."),
        (("own.json",), "own.json is already a ModelDyno document: use it with modeldyno show, compare"),
        (("own.json", "--from", "vlm"), "There is no importer 'vlm'; did you mean 'vllm'?"),
        (("cut.json", "--from", "guidellm"), "or is damaged; check what wrote it"),
        (("bare.json",), "bare.json is a file of perf_analyzer, but has no load."),
    ],
)
def test_what_cannot_be_imported_is_told_in_a_sentence(
    arguments: tuple[str, ...], sentence: str, modeldyno: Callable[..., CommandResult], tmp_path: Path
) -> None:
    """Exit code 2, and what to do."""
    (tmp_path / "other.json").write_text('{"schema": 1}')
    (tmp_path / "own.json").write_bytes(codec.encode(a_result()))
    (tmp_path / "empty.json").touch()
    (tmp_path / "cut.json").write_text((GOLDEN / "guidellm_concurrent.json").read_text()[:5000])
    (tmp_path / "bare.json").write_text('{"experiments": []}')
    result = modeldyno("import", *arguments)

    assert result.code == 2
    assert sentence in result.err
    assert len(result.err.splitlines()) == 1
