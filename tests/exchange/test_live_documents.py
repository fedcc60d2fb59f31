"""A document of each kind that was measured a moment ago holds; one of whose numbers is another does not."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

import modeldyno
from modeldyno.base import kinds
from modeldyno.base.errors import ModelDynoError
from modeldyno.exchange.verify import verify_bytes
from modeldyno.testing.known_latency import KnownLatency
from modeldyno.testing.server import serve_in_subprocess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from modeldyno.base.document import StoredDocument

    Measure = Callable[[str, Path], StoredDocument]

BRIEF = modeldyno.Plan(max_time=0.3, min_time=0.05, precision=0.5)
LOADED = modeldyno.Plan(max_time=1, min_time=0.3, precision=0.5)
EXAMPLE = [[1.0, 2.0, 3.0, 4.0]] * 4


def double(x: Any) -> Any:
    return x + x


def a_network() -> Any:
    """Return a small network, and its example."""
    torch = pytest.importorskip("torch")
    return torch.nn.Linear(4, 2).eval(), torch.ones(1, 4)


def a_sweep(_url: str, _folder: Path) -> StoredDocument:
    return modeldyno.sweep(
        double, example=EXAMPLE, space="batch_size=1,2", max_trials=2, plan=BRIEF, progress=False
    )


def a_comparison(_url: str, _folder: Path) -> StoredDocument:
    return modeldyno.compare(
        KnownLatency(0.001), KnownLatency(0.002), max_time=1, store=False, progress=False
    )


class Asleep(modeldyno.compat.BaseModelInspector):
    def infer(self, input_batch: Any) -> Any:
        """Take a millisecond."""
        time.sleep(0.001)
        return input_batch


def a_diagnosis(_url: str, _folder: Path) -> StoredDocument:
    return modeldyno.compat.Profiler("m", inspector=Asleep("x", batch_num=100)).diagnose().result


MEASURE: dict[str, Measure] = {
    "profile": lambda _url, _folder: modeldyno.profile(
        double, EXAMPLE, plan=BRIEF, store=False, progress=False
    ),
    "inspect": lambda _url, _folder: modeldyno.inspect(*a_network(), store=False, progress=False),
    "sweep": a_sweep,
    "compare": a_comparison,
    "convert": lambda _url, folder: modeldyno.convert(
        *a_network(), to="torchscript", output=folder / "forms", store=False
    ),
    "diagnosis": a_diagnosis,
    "load": lambda url, _folder: modeldyno.load(
        url, concurrency=2, inputs=["x=1x4"], plan=LOADED, store=False, progress=False
    ),
    "load curve": lambda url, _folder: modeldyno.load_curve(
        url, concurrency=(1, 2), inputs=["x=1x4"], plan=LOADED, progress=False
    ),
    "find-load": lambda url, _folder: modeldyno.find_load(
        url, require="latency.p50 <= 50ms", most=2, inputs=["x=1x4"], plan=LOADED, progress=False
    ),
    "explain": lambda url, _folder: modeldyno.explain(
        url, inputs=["x=1x4"], max_time=3, rounds=1, store=False, progress=False
    ),
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Run a server that takes 2 ms for each request."""
    with serve_in_subprocess("--service", "constant:0.002") as running:
        yield f"http://127.0.0.1:{running.port}#echo"


@pytest.mark.parametrize("kind", MEASURE)
@pytest.mark.usefixtures("brief_measurements")
def test_one_holds_and_an_edited_one_does_not(kind: str, url: str, tmp_path: Path) -> None:
    """In memory and as a file; each number that is a tenth less is found, wherever in the file it is."""
    document = MEASURE[kind](url, tmp_path)
    written = kinds.kind_of(document).encode(document)
    file = tmp_path / "document.json"
    file.write_bytes(written)

    assert modeldyno.verify(document).wrong == ()
    assert modeldyno.verify(file).holds
    assert edits_not_found(written, 10) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", MEASURE)
def test_a_hundred_hold(kind: str, url: str, tmp_path: Path) -> None:
    """Measured as users measure, with the trials of a sweep and the loads of a series."""
    for run in range(100):
        document = MEASURE[kind](url, tmp_path / str(run))

        assert modeldyno.verify(document).wrong == ()
        if run == 0:
            assert edits_not_found(kinds.kind_of(document).encode(document), 100) == []
        for part in getattr(document, "trials", ()) or getattr(document, "rungs", ()):
            assert not part.result or modeldyno.verify(part.result).wrong == ()


def edits_not_found(written: bytes, count: int) -> list[tuple[Any, ...]]:
    """Return those of so many numbers, from all parts of a document, that may be a tenth less unseen."""
    places = list(numbers_in(json.loads(written)))
    return [path for path in places[:: max(1, len(places) // count)] if holds_without_a_tenth(written, path)]


def numbers_in(plain: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to each number of a document of JSON that is not nothing."""
    if isinstance(plain, dict | list):
        for key, part in plain.items() if isinstance(plain, dict) else enumerate(plain):
            yield from numbers_in(part, (*path, key))
    elif plain and isinstance(plain, int | float) and not isinstance(plain, bool):
        yield path


def holds_without_a_tenth(written: bytes, path: tuple[Any, ...]) -> bool:
    """Return whether a document still holds whose number at `path` is a tenth less."""
    plain = part = json.loads(written)
    *parents, last = path
    for key in parents:
        part = part[key]
    part[last] *= 0.9
    with suppress(ModelDynoError):  # such as a number of calls that is no whole one
        return verify_bytes(json.dumps(plain).encode()).holds
    return False
