"""What all tests share: golden files, and no memory of another machine's settings."""

from __future__ import annotations

import gc
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from tests.support.truth_values import refuse_truth_of_verdicts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GOLDEN = Path(__file__).parent / "golden"
EXAMPLES = int(os.environ.get("MODELDYNO_EXAMPLES", "100"))
"""Examples of each property that Hypothesis tries."""
settings.register_profile(
    "unhurried",
    settings(),
    deadline=None,  # a busy machine is no mistake
    max_examples=EXAMPLES,
)
settings.load_profile("unhurried")
gc.disable()  # nothing that is imported or rewritten becomes garbage: to search it is a tenth of collecting


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a reader accept what reports look like now."""
    parser.addoption(
        "--overwrite-golden", action="store_true", help="write golden files anew; look at the diff"
    )


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let a worker count reruns without delay: two short messages in a row wait 40 ms for each test."""
    connection = getattr(getattr(session.config, "failures_db", None), "sock", None)
    if isinstance(connection, socket.socket):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def pytest_collection_finish() -> None:
    """Let tests run as programs do."""
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _store_of_these_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what tests measure out of the store of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path_factory.mktemp('store')}/store.db")
        patch.setenv("MODELDYNO_WORKER", "no")
        yield


@pytest.fixture(scope="session", autouse=True)
def _verdicts_are_compared() -> Iterator[None]:
    """No code of ours drops a verdict because it is broken."""
    with pytest.MonkeyPatch.context() as patch:
        refuse_truth_of_verdicts(patch)
        yield


@pytest.fixture(autouse=True)
def _environment_as_it_was() -> Iterator[None]:
    """A test that leaves a variable of ours behind fails, not one after it."""
    before = _our_variables()
    yield
    assert _our_variables() == before


def _our_variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("MODELDYNO_")}


@pytest.fixture(autouse=True)
def _imports_are_no_garbage() -> None:
    """Let no collection of a test search what earlier tests imported: with torch, half a second each."""
    gc.freeze()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Give a function that compares text with a golden file, or writes the file anew."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--overwrite-golden"):
            path.write_bytes(text.encode())
        assert path.read_bytes().decode() == text, f"if {name} should look so now: pytest --overwrite-golden"

    return check


@pytest.fixture
def nothing_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a time limit end nothing that runs, so that a test of one round can be as short as can be."""
    monkeypatch.setattr("modeldyno.engine.runtime.time_limit.TimeLimit.is_exhausted", False)


@pytest.fixture
def brief_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure what runs within the test's own process after few calls, and watch it by no side process.

    For tests of something else. With all frameworks imported, each look at the memory takes as long as a
    hundred calls.
    """
    for module in ("engine", "sampling"):
        monkeypatch.setattr(f"modeldyno.engine.runtime.{module}.start_samplers", lambda *_, **__: [])
    monkeypatch.setattr("modeldyno.base.metrics.stop_rule._WARMUP_SPAN", 0.02)
    monkeypatch.setattr("modeldyno.base.metrics.stop_rule._WARMUP_RUNS", 5)
