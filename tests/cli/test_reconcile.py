"""``modeldyno reconcile``, as a user types it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno import reconcile as from_python
from modeldyno.base import codec
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.exchange.reconciliation import Reconciliation
from modeldyno.exchange.views.reconciliation import blocks, headline
from modeldyno.testing.sample_results import a_result

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN = Path(__file__).parents[1] / "exchange" / "importers" / "golden"
LOG = GOLDEN / "loadgen_server" / "mlperf_log_summary.txt"


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A result of a load in ours.json, with a warm-up of half a second."""
    times = np.random.default_rng(0).exponential(0.004, 500) + 0.002
    spreads = {"latency": times, "service_time": times - 0.001}
    measurements = [
        Measurement(metric=name, value=Distribution.of(each, warmup_time=0.5))
        for name, each in spreads.items()
    ]
    path = tmp_path / "ours.json"
    path.write_bytes(codec.encode(a_result(measurements=tuple(measurements), doubts=())))
    return path


@pytest.mark.usefixtures("ours")
def test_differences_are_split(modeldyno: Callable[..., Any]) -> None:
    """A table has the parts of each difference; notes have the rule, the warm-up and other definitions."""
    run = modeldyno("reconcile", "ours.json", str(LOG))
    assert run.code == 0
    text = " ".join(run.out.split())
    assert "latency of loadgen, against ours" in text
    assert "percentile rule of loadgen, which its own figures show: rank n p + 1" in text
    assert "the first 500 ms are, so the same is taken off" in text
    assert "other-definition: latency: LoadGen ends a query" in text
    quiet = modeldyno("reconcile", "ours.json", str(LOG), "-q")
    assert (quiet.code, quiet.out.count("\n")) == (0, 1)


def test_json_and_python_have_the_parts(ours: Path, modeldyno: Callable[..., Any]) -> None:
    """The same rows, as numbers in seconds that add up to the difference."""
    printed = json.loads(modeldyno("reconcile", "ours.json", str(LOG), "--json", "-").out)
    (document,) = printed["reconciliations"]
    (reconciliation,) = from_python(ours, LOG)
    assert [row["left"] for row in document["rows"]] == [row.left for row in reconciliation.rows]
    (row, *_) = document["rows"]
    parts = row["rule"] + row["warmup"] + row["definition"] + row["left"]
    assert parts == pytest.approx(row["theirs"] - row["ours"])
    assert len(from_python(str(ours), [LOG, GOLDEN / "guidellm_poisson.json"])) == 2


@pytest.mark.usefixtures("ours")
def test_a_file_of_no_tool_is_a_wrong_request(modeldyno: Callable[..., Any]) -> None:
    """It is refused in a sentence."""
    run = modeldyno("reconcile", "ours.json", "ours.json")
    assert (run.code, run.err.count("\n")) == (2, 1)


def test_what_cannot_be_split_says_so(ours: Path) -> None:
    """Without requests the rule is in what is left; without a common time there is nothing to compare."""
    (reconciliation,) = from_python(ours, LOG)
    rows = tuple(replace(row, rule=None, warmup=None, interval=None) for row in reconciliation.rows)
    texts = [getattr(block, "text", "") for block in blocks(replace(reconciliation, requests=0, rows=rows))]
    assert "loadgen reports no requests, so its rule and warm-up are in what is left" in texts
    empty = Reconciliation(
        tool="x",
        version="",
        requests=0,
        rules=(),
        dropped=0,
        no_client="",
        sent_late=(None, None),
        rows=(),
        notes=(),
    )
    assert headline(empty) == "x reports no time that this result has, too."
