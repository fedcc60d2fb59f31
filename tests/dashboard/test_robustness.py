"""Whatever is asked for, the dashboard answers with a page, a redirection or a refusal: no error."""

from __future__ import annotations

import json
import random
import re
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import pytest
from tests.dashboard.conftest import HOSTILE, PORT

from modeldyno.dashboard.app import PAGES, WRITES
from modeldyno.dashboard.guard import API

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.dashboard.conftest import Visitor

MANY = pytest.param(500, marks=pytest.mark.slow)
WORDS = (
    "", " ", "digits", "0" * 12, "f" * 12, "1", "-1", "0", "9" * 400, "1e309", "nan", "inf", "-0.0",
    "null", "true", "%", "_", "'", '"', "\\", "\x00", "\x1f", "\n", "\u202e", "\U0001f4a9", "é" * 300,
    "..", "../../etc/passwd", "' OR 1=1 --", "${jndi:x}", "{{7*7}}", "[]", "{}", "a" * 5000, HOSTILE,
    "latency.p99 <= 5ms", "latency.p99 <=", "batch_size = 8 and (", "not " * 200 + "failed", "(" * 500,
    "throughput >= 1e999/s", "latency.p50 < 1 parsec", "2026-11-26T13:00:00+00:00", "2026-13-99",
    "1000/s", "-5/s", "0/s", "1.2/h", "@", "a@b@c", ":", "add", "remove", "retry", "cancel",
    "production",
)  # fmt: skip
NAMES = (
    "do",
    "tag",
    "name",
    "alias",
    "version",
    "id",
    "task",
    "before",
    "where",
    "of",
    "with",
    "text",
    "x" * 300,
)


def drawn(source: random.Random) -> str:
    """Give a word, a piece of one, two of them, or noise."""
    word = source.choice(WORDS)
    match source.randrange(4):
        case 0:
            return word[: source.randrange(len(word) + 1)]
        case 1:
            return word + source.choice(WORDS)
        case 2:
            return "".join(
                chr(source.choice((source.randrange(128), source.randrange(0xD7FF)))) for _ in range(9)
            )
    return word


def filled(path: str, source: random.Random, known_names: list[str]) -> str:
    """Put something that is there, or something odd, into the places of a path."""
    return re.sub(
        r"\{\w+\}",
        lambda _: quote(
            source.choice((source.choice(known_names), drawn(source))).replace("/", "") or "-", safe=""
        ),
        path,
    )


def addresses(path: str, query: tuple[str, ...], count: int, known_names: list[str]) -> Iterator[str]:
    """Give addresses of a page: each part of the query is left out, odd, or given twice."""
    source = random.Random(path)
    for _ in range(count):
        names = [name for name in (*query, *query, source.choice(NAMES)) if source.random() < 0.5]
        parts = urlencode([(name, drawn(source)) for name in names])
        yield f"{filled(path, source, known_names)}?{parts}"


@pytest.fixture
def known_names(visitor: Visitor) -> list[str]:
    """Give ids and names of the store."""
    text = "".join(
        visitor.read(path) for path in ("/results", "/studies", "/comparisons", "/loads", "/models")
    )
    return sorted(
        {*re.findall(r'href="/(?:results|studies|comparisons|loads|models)/([^"/?]+)', text), "digits"}
    )


@pytest.mark.parametrize("count", [5, MANY])
@pytest.mark.parametrize("route", PAGES, ids=lambda route: route.path)
def test_no_address_is_an_error(visitor: Visitor, known_names: list[str], route: object, count: int) -> None:
    """As a page and as JSON."""
    path, query = route.path, route.query  # type: ignore[attr-defined]
    twin = API + ("/home" if path == "/" else path)
    for address in (*addresses(path, query, count, known_names), *addresses(twin, query, count, known_names)):
        status = visitor.client.get(address, follow_redirects=False).status_code
        assert status < 500, address


@pytest.mark.parametrize("count", [15, MANY])
@pytest.mark.parametrize("route", WRITES, ids=lambda route: route.path)
def test_no_form_is_an_error(visitor: Visitor, known_names: list[str], route: object, count: int) -> None:
    """With the token of its session and fields of any name and text, and as other kinds of bodies."""
    source = random.Random(route.path)  # type: ignore[attr-defined]
    token = re.search(r'name="token" value="([^"]+)"', visitor.read("/models/digits"))
    assert token is not None
    statuses = set()
    for _ in range(count):
        path = filled(route.path, source, known_names)  # type: ignore[attr-defined]
        fields = {name: drawn(source) for name in NAMES if source.random() < 0.5} | {"token": token[1]}
        body = urlencode(fields).encode()[: source.choice((None, None, None, source.randrange(99)))]
        kind = source.choice(
            ("application/x-www-form-urlencoded",) * 3 + ("application/json", "multipart/form-data", "")
        )
        headers = {"content-type": kind, "origin": f"http://127.0.0.1:{PORT}"}
        answer = visitor.client.post(path, content=body, headers=headers, follow_redirects=False)
        assert answer.status_code < 500, (path, body)
        statuses.add(answer.status_code)
    assert statuses & {303, 400, 404}, "no form was read"


NUMBERS = ("nan", "inf", "-inf", "1e999", "1e308", "9" * 5000, "-0", "1e-999")
ASKED = {
    "/models/digits/answer": ("p99", "price", "demand", "require"),
    "/results": ("where", "before"),
    "/tasks": ("before",),
}
FORMS = {"/models/digits/1/measure": "batch", "/models/digits/compare": "version"}
UNITS = {"price": "{}/h", "demand": "{}/s", "require": "latency.p99 <= {}ms", "where": "latency.p99 < {}ms"}


def _refuse(constant: str) -> None:
    raise AssertionError(f"a document has {constant}")


@pytest.mark.parametrize("path", ASKED)
def test_a_number_that_is_none_is_refused_or_shown_as_none(visitor: Visitor, path: str) -> None:
    """In each field of a page: no answer is a fault, and no page or document shows `nan` or `inf`."""
    for name in ASKED[path]:
        for number in NUMBERS:
            query = urlencode({name: UNITS.get(name, "{}").format(number)})
            page = visitor.client.get(f"{path}?{query}")
            document = visitor.client.get(f"{API}{path}?{query}")
            assert {page.status_code, document.status_code} <= {200, 400, 404}, query
            if page.status_code == 200:
                shown = re.sub(r"<[^>]*>|value=\"[^\"]*\"", " ", page.text)
                assert not re.search(r"(?<![\w/<=.-])(nan|inf)(?=[\s%/]|$)", shown.replace(number, "")), query
            json.loads(document.text, parse_constant=_refuse)


@pytest.mark.parametrize("path", FORMS)
def test_no_form_takes_a_number_that_is_none(visitor: Visitor, path: str) -> None:
    """The field of a number is refused in a sentence, and nothing is queued."""
    queued = visitor.json("/tasks")["tasks"]
    for number in NUMBERS:
        fields = {"batch": number, FORMS[path]: number, "recipe": "source"}
        assert visitor.send(path, "/models/digits", **fields).status_code == 400, number
    assert visitor.json("/tasks")["tasks"] == queued
