"""Streams as real servers write them are seen as the server's own clock has them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from modeldyno.base.job.load_spec import Load
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.engine.interfaces.request_target import Endpoint
from modeldyno.serving.clients import http, openai
from modeldyno.serving.load.request_log import PieceTimes
from modeldyno.testing.server import serve_in_subprocess
from modeldyno.testing.server_dialects import DIALECTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.serving.loadgen.conftest import Driven

    from modeldyno.engine.interfaces.request_target import Target
    from modeldyno.testing.server import RunningServer

TOKENS, CALL, PACE = 8, 0.004, 0.002
REQUESTS = 4
LATE = 1.5e6
"""Nanoseconds of the loopback, in the quickest of the requests."""


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with serve_in_subprocess("--service", f"constant:{CALL}", "--pace", str(PACE)) as running:
        yield running


def target(server: RunningServer, name: str) -> Target:
    """A request to a dialect by the client that a user would take."""
    dialect = DIALECTS[name]
    if dialect.endpoint:
        options: dict[str, str | int] = {"endpoint": dialect.endpoint, "max_tokens": TOKENS}
        feed = {"prompt": np.array(["hello"], object)}
        place = Endpoint(host=server.host, port=server.port, path=f"/dialect/{name}", options=options)
        return openai.target([feed], place)
    body = {"body": np.array([json.dumps({"max_tokens": TOKENS})], object)}
    place = Endpoint(
        host=server.host, port=server.port, path=f"/dialect/{name}/generate", options={"stream": True}
    )
    return http.target([body], place)


@pytest.mark.parametrize("name", DIALECTS)
def test_a_dialect_is_timed_as_its_server_has_it(
    name: str, server: RunningServer, driven: Callable[..., Driven]
) -> None:
    """Outcome, tokens and pieces are right; the first and the last piece come when the server wrote them."""
    dialect = DIALECTS[name]
    server.forget()
    ran = driven(target(server, name), Load(concurrency=1, requests=REQUESTS))
    truth, records = server.truth(), ran.records
    if dialect.outcome is not RequestOutcome.OK:
        assert {RequestOutcome(outcome) for outcome in records.outcome} == {dialect.outcome}
        return
    assert set(records.outcome) == {RequestOutcome.OK}
    assert set(records.tokens) == {TOKENS if dialect.counted else -1}
    written = -(-TOKENS // dialect.together) if dialect.pieces is None else dialect.pieces
    pieces = records.pieces or PieceTimes.of([()] * REQUESTS)
    assert pieces.counts.tolist() == [written] * REQUESTS
    assert set(records.reasoning) == {min(dialect.reasoning, written)}
    client = openai if dialect.endpoint else http
    assert {client.finish_reason(reply) for reply in ran.replies} == {dialect.reason}
    if dialect.endpoint:
        assert all(openai.arrays(reply)["text"].size for reply in ran.replies)
    if written:
        first = pieces.first() - truth.first
        last = pieces.last() - truth.end
        assert (first >= 0).all()
        assert (last >= 0).all()
        assert min(first) < LATE
        assert min(last) < LATE


def test_the_table_has_forty_dialects() -> None:
    """And each kind of outcome."""
    assert len(DIALECTS) >= 40
    assert {dialect.outcome for dialect in DIALECTS.values()} == {
        RequestOutcome.OK,
        RequestOutcome.SERVER_ERROR,
        RequestOutcome.TRUNCATED,
    }
