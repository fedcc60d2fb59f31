from __future__ import annotations

import csv
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape
from html.parser import HTMLParser
from importlib import metadata
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import jsonschema
import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.dashboard.conftest import HOSTILE, INSPECTED, links_of, put, visitor_of
from tests.support.sample_registry import a_figure, a_task, a_variant, a_version

from modeldyno.base import plugins
from modeldyno.base.kinds import kind_of
from modeldyno.base.metrics.measurement import observed_number
from modeldyno.base.report.blocks import Notice, Table
from modeldyno.dashboard.alerts import attention_table
from modeldyno.dashboard.api_writes import API_WRITES
from modeldyno.dashboard.app import AS_CSV, MOVED, PAGES, QUERY, WRITES
from modeldyno.dashboard.document_pages import split_heading
from modeldyno.dashboard.guard import API
from modeldyno.dashboard.home_page import home
from modeldyno.dashboard.model_wall import model_wall
from modeldyno.dashboard.page import ROOMS, SETTINGS, Attention, PageRequest
from modeldyno.dashboard.schema import TYPES
from modeldyno.registry.records.records import FigureState
from modeldyno.registry.targets import software_here, target_here
from modeldyno.testing.sample_conversions import a_conversion
from modeldyno.testing.sample_results import a_result, an_inspection
from modeldyno.testing.sample_series import a_capacity, a_comparison, a_ladder
from modeldyno.testing.sample_studies import a_study

if TYPE_CHECKING:
    from pathlib import Path

    from tests.dashboard.conftest import Visitor

    from modeldyno.dashboard.app import PageRoute
    from modeldyno.stores.interface import Store

EXAMPLES = {
    "/models/{name}": "/models/digits",
    "/models/{name}/answer": "/models/digits/answer?require=latency.p50+%3C%3D+20ms&demand=200/s&price=1.2/h",
    "/models/{name}/{version}": "/models/digits/2",
    "/results/{id}": "/results/010101010101",
    "/results/{id}/network": f"/results/{INSPECTED}/network",
    "/studies/{id}": f"/studies/{a_study().id}",
    "/comparisons/{id}": f"/comparisons/{a_comparison().id}",
    "/loads/{id}": f"/loads/{a_ladder().id}",
    "/conversions/{id}": f"/conversions/{a_conversion().id}",
    "/compare": f"/compare?with=010101010101&with=020202020202&with={a_capacity().id}",
}
"""Pages that are of one thing."""


def example(path: str) -> str:
    return EXAMPLES.get(path, path)


class Outline(HTMLParser):
    """What a reader without eyes meets on a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.labelled: set[str] = set()
        self.fields: list[dict[str, str | None]] = []
        self.heads: list[dict[str, str | None]] = []
        self.current: list[str | None] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element is."""
        self.tags.append(tag)
        attributes = dict(attrs)
        self.current += [attributes["aria-current"]] if "aria-current" in attributes else []
        if tag == "label":
            self.labelled.add(str(attributes.get("for")))
        if tag in {"input", "select", "textarea"} and attributes.get("type") != "hidden":
            self.fields.append(attributes)
        if tag == "th":
            self.heads.append(attributes)


@pytest.mark.parametrize("path", [route.path for route in PAGES])
def test_every_page_has_a_json_twin(visitor: Visitor, path: str) -> None:
    """Both answer, and the page links to its twin."""
    text = visitor.read(example(path))

    assert visitor.json(example(path)) is not None
    assert "This page as JSON" in text


@pytest.mark.parametrize("path", [route.path for route in PAGES])
def test_a_page_can_be_read_without_eyes(visitor: Visitor, path: str) -> None:
    """One heading of the first level, landmarks, a label for every field, a scope for every head."""
    page = Outline(visitor.read(example(path)))

    assert page.tags.count("h1") == 1
    assert {"header", "nav", "main", "footer"} <= set(page.tags)
    assert page.current.count("page") == 1
    assert page.current.count("true") <= 1
    assert [
        field for field in page.fields if field.get("id") not in page.labelled and "aria-label" not in field
    ] == []
    assert [head for head in page.heads if "scope" not in head] == []


@pytest.mark.parametrize("path", [route.path for route in PAGES])
def test_a_page_has_no_script_or_style_of_its_own(visitor: Visitor, path: str) -> None:
    """Everything comes from files of this server, as the policy wants it."""
    text = visitor.read(example(path))

    assert "<style" not in text
    assert " style=" not in text
    assert " onclick" not in text
    assert text.count("<script") == text.count('<script src="/static/') + text.count(
        'type="application/json"'
    )


@pytest.mark.parametrize("most", [45, pytest.param(120, marks=pytest.mark.slow)])
def test_every_link_of_every_page_leads_somewhere(visitor: Visitor, most: int) -> None:
    """Whoever follows links from the first page, the last one first, finds no page missing."""
    statuses: dict[str, int] = {}
    waiting = ["/"]
    while waiting and len(statuses) < most:
        path = waiting.pop()
        answer = visitor.get(path)
        statuses[path] = answer.status_code
        waiting += [link for link in links_of(answer.text) if link not in statuses and link not in waiting]

    assert {path: status for path, status in statuses.items() if status != 200} == {}
    assert len(statuses) > 40


def test_what_a_page_loads_is_there(visitor: Visitor) -> None:
    """Each script and style that a page names is served, to be kept."""
    text = visitor.read("/results/010101010101")
    files = [part.split('"')[0] for part in text.split('"/static/')[1:]]

    assert "echarts.js" in {file.partition("?")[0] for file in files}
    for file in files:
        answer = visitor.get(f"/static/{file}")
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]


@pytest.mark.parametrize(
    "path",
    ["/results/none", "/studies/none", "/loads/none", "/comparisons/none", "/models/none", "/nothing",
     "/models/digits/99", "/models/none/answer", "/compare?with=none", "/static/../app.py",
     "/static/nothing.js", "/models/digits/answer?on=nowhere", "/events?before=x",
     f"/comparisons/{a_ladder().id}"],
)  # fmt: skip
def test_what_is_not_there_is_said_in_a_sentence(visitor: Visitor, path: str) -> None:
    """With 404, or 400 for a question that cannot be asked, and no traceback."""
    answer = visitor.get(path)

    assert answer.status_code in {400, 404}
    assert "Traceback" not in answer.text
    assert "<h1>" in answer.text


def test_attacking_names_are_escaped(visitor: Visitor) -> None:
    """A name of a model is text on every page that shows it."""
    for path in ("/results", f"/results/{'e' * 12}", f"/compare?with={'e' * 12}"):
        assert HOSTILE[:20] not in visitor.read(path)
    assert "&lt;script&gt;" in visitor.read(f"/results/{'e' * 12}")


@pytest.mark.parametrize("route", AS_CSV, ids=lambda route: route.path)
def test_a_list_can_be_had_for_a_spreadsheet(visitor: Visitor, route: PageRoute) -> None:
    """Its page leads there; a row for each of the first table, and no cell is a formula."""
    answer = visitor.get(f"{route.path}.csv?x=1")
    rows = list(csv.reader(answer.text.splitlines()))

    assert f'href="{route.path}.csv"' in visitor.read(route.path)
    assert answer.headers["content-type"].startswith("text/csv")
    assert "attachment" in answer.headers["content-disposition"]
    assert len(rows) > 1 or route.path == "/trends"  # nothing was measured twice
    assert not [cell for row in rows for cell in row if cell.startswith(("=", "@"))]


def test_the_matrix_shows_the_columns_that_were_chosen(visitor: Visitor) -> None:
    """Of each target; all of them, unless some are named."""
    assert "here: p50,here: p99,here: rate,here: state" in visitor.get("/models.csv").text
    chosen = visitor.get("/models.csv?show=rate").text.splitlines()[0]

    assert "here: rate,here: state" in chosen
    assert "p50" not in chosen


def test_lists_have_pages(visitor: Visitor) -> None:
    """The links to older ones lead through all of a list, each once."""
    ids, path = [], "/results"
    while path:
        page = visitor.json(path)
        ids += [item["id"] for item in page["items"]]
        path = (page["next"] or "").removeprefix(API)

    assert len(ids) == len(set(ids)) == 33


def test_an_empty_store_says_what_to_do(newcomer: Visitor) -> None:
    """Every page of a store that is not there yet is shown, also to several at once; no file is made."""
    paths = [route.path for route in PAGES if "{" not in route.path] * 4
    with start_blocking_portal() as newcomer.client.portal, ThreadPoolExecutor(8) as pool:
        # One event loop for all, as on a server: a lock of asyncio belongs to one.
        answers = list(pool.map(newcomer.get, paths))

    assert {answer.status_code for answer in answers} == {200}
    assert "modeldyno profile model.onnx" in answers[0].text
    assert newcomer.store.change_mark() == ""


def test_the_columns_of_results_are_chosen(visitor: Visitor) -> None:
    """Those of the list, and any metric that the store keeps; they stay on the next page and in the CSV."""
    text = visitor.read("/results?columns=created,+throughput,+latency.p99")
    table = list(csv.reader(visitor.read("/results.csv?columns=created,throughput,latency.p99").splitlines()))

    assert '<th scope="col" class="right place2">throughput</th>' in text
    assert "columns=created%2C+throughput%2C+latency.p99&amp;before=" in text
    assert table[0] == ["model", "created", "throughput", "latency.p99", "id"]
    assert table[3][2:4] == ["6,200/s", "about 3.1 ms"]


def test_results_are_named_by_model_and_settings_beside_their_figures(tmp_path: Path) -> None:
    """A setting in which they differ is named, each figure has a column, and the id is the last one."""
    with plugins.store(f"sqlite:///{tmp_path}/store.db") as store:
        for threads, digit in ((1, "a"), (8, "b")):
            result = a_result(id=digit * 12)
            config = {**result.job.config, "threads": threads}
            store.put(replace(result, job=replace(result.job, config=config)), headline="cpu, batch 8: fast")
        remote = a_result(id="c" * 12, name="echo")
        store.put(replace(remote, job=replace(remote.job, config={})), headline="echo says much")
        visitor = visitor_of(store)
        text = visitor.read("/results")
        table = list(csv.reader(visitor.read("/results.csv").splitlines()))

    header, *rows = table
    assert header == ["model", "p50", "p99", "rate", "when", "id"]
    assert sorted(row[0] for row in rows) == [
        "digits · cpu, batch 8, threads=1",
        "digits · cpu, batch 8, threads=8",
        "echo",
    ]
    assert {row[header.index("rate")] for row in rows} == {"6,200/s"}
    settings_ = '<span class="settings"> &#183; cpu, batch 8, threads=1</span>'
    assert f'<a href="/results/aaaaaaaaaaaa">digits{settings_}</a>' in text
    assert '<time datetime="2026-01-02T03:04Z">2026-01-02 03:04</time>' in text


def test_a_single_load_says_how_it_was_loaded(tmp_path: Path) -> None:
    """Its summary has the concurrency or the rate, beside what was measured."""
    with plugins.store(f"sqlite:///{tmp_path}/store.db") as store:
        result = a_result(id="a" * 12)
        load = replace(result, measurements=(*result.measurements, observed_number("request_rate", 50.0)))
        store.put(load, headline="remote, concurrency 4: 12 ms, 50/s")
        text = visitor_of(store).read("/loads")

    assert "remote, concurrency 4" in text


def test_models_that_are_not_registered_are_listed_too(tmp_path: Path) -> None:
    """Everything that was measured stands on the page of models, and leads to its results."""
    with plugins.store(f"sqlite:///{tmp_path}/store.db") as store:
        for digit in "ab":
            store.put(a_result(id=digit * 12, name="the model of my own"), headline="says much")
        text = visitor_of(store).read("/models")

    assert "Measured" in text
    assert 'href="/results?name=the+model+of+my+own"' in text
    assert "the model of my own</a>" in text


@pytest.mark.parametrize("columns", ["nonsense", ",".join(f"latency.p{n}" for n in range(1, 20))])
def test_a_column_that_is_none_is_said(visitor: Visitor, columns: str) -> None:
    """In a sentence, with the form to correct it."""
    answer = visitor.get(f"/results?columns={columns}")

    assert answer.status_code == 400
    assert 'name="columns"' in answer.text


def test_tasks_have_pages(tmp_path: Path) -> None:
    """Fifty at a time, in the order in which they will be done, each once; the links lead on and back."""
    with plugins.store(f"sqlite:///{tmp_path}/store.db") as store:
        version, _ = store.registry.add_version(a_version())
        store.registry.enqueue([a_task(version, batch=batch) for batch in range(1, 121)])
        looked = visitor_of(store)
        ids, path = [], "/tasks"
        while path:
            page = looked.json(path)
            ids += [task["id"] for task in page["tasks"]]
            path = (page["next"] or "").removeprefix(API)
        second = looked.read("/tasks?before=1-100-50")

    assert ids == sorted(set(ids))
    assert len(ids) == 120
    assert '<input type="checkbox" form="tasks" name="task" value="51"' in second
    assert '<a href="/models/digits/1">' in second
    assert ">First</a>" in second
    assert ">More</a>" in second


def test_a_variant_leads_to_the_document_of_its_conversion(visitor: Visitor) -> None:
    """The source has none."""
    text = visitor.read("/models/digits/2")
    document = a_conversion().id

    assert f'<a href="/conversions/{document}">{document[:6]}</a>' in text
    assert text.count('href="/conversions/') == 1


@pytest.mark.parametrize(("old", "new"), MOVED.items())
def test_a_room_is_reached_by_its_name(visitor: Visitor, old: str, new: str) -> None:
    """Its address leads on to the page, with the query."""
    answer = visitor.client.get(f"{old}?name=digits", follow_redirects=False)

    assert (answer.status_code, answer.headers["location"]) == (308, f"{new}?name=digits")


def test_rooms_are_five_and_a_gear(visitor: Visitor) -> None:
    """Each list is in one of them, under its tab."""
    text = visitor.read("/loads")
    rooms = text.partition('class="rooms"')[2].partition("</nav>")[0]
    tabs = text.partition('class="tabs"')[2].partition("</nav>")[0]

    assert links_of(rooms) == ["/", "/models", "/results", "/trends", "/tasks", "/settings"]
    assert '<a href="/settings" aria-label="Settings"' in rooms
    assert links_of(tabs) == ["/results", "/loads", "/studies", "/comparisons", "/conversions"]
    reached = {tab.address for room in ROOMS for tab in room.tabs} | {SETTINGS.address, "/compare"}
    assert {route.path for route in PAGES if "{" not in route.path} == reached


def test_a_document_has_its_answer_as_the_heading_and_its_id_in_the_trail(visitor: Visitor) -> None:
    """Room, model and id lead to it; the verdict is not said twice."""
    document = a_comparison()
    text = visitor.read(f"/comparisons/{document.id}")
    heading = text.partition("<h1>")[2].partition("</h1>")[0]

    assert document.id[:6] not in heading
    assert heading[:20] in unescape(kind_of(document).headline(document))
    trail = text.partition('class="trail"')[2].partition("</nav>")[0]
    assert links_of(trail)[0] == "/comparisons"
    assert f'<span aria-current="page">{document.id[:6]}</span>' in trail
    assert 'class="verdict"' not in text


_OPEN = "It is undecided whether b is better than a"


@pytest.mark.parametrize(
    ("text", "title", "lead"),
    [
        ("Short: it is fast.", "Short: it is fast.", ""),
        (f"{_OPEN}: latency {'x' * 90}", f"{_OPEN}.", f"Latency {'x' * 90}"),
        (f"{_OPEN}: latency.p50 {'x' * 90}", f"{_OPEN}.", f"latency.p50 {'x' * 90}"),
        ("x" * 120, "x" * 120, ""),
    ],
)
def test_a_long_verdict_has_its_first_clause_as_the_heading(text: str, title: str, lead: str) -> None:
    """The rest stands below it, and a name of code keeps its small letter."""
    assert split_heading(text) == (title, lead)


def test_the_wall_has_a_card_for_each_model(tmp_path: Path) -> None:
    """What is worse comes first, with its change; a curve is of results that were measured alike."""
    with plugins.store(f"sqlite:///{tmp_path}/store.db") as store:
        for number in range(4):
            created = f"2026-01-0{number + 1}T00:00:00+00:00"
            put(store, a_result(id=f"{number:02x}" * 6, name="well", created=created))
        other = a_result(id="9" * 12, name="well", created="2026-01-09T00:00:00+00:00")
        put(store, replace(other, job=replace(other.job, config={"batch_size": 2})))
        put(store, an_inspection(id="e" * 12))
        put(store, a_result(id="d" * 12, name="bad", samples=[0.002] * 30))
        worse = Attention("worse", "bad", "", "it is slower", "/trends?name=bad", "+20.0%")
        doubtful = Attention("doubtful", "well/1: source", "here", "busy", "/models/well/1")
        (wall,) = model_wall(store, store.find(), [doubtful, worse])

    by_name = {card.name: card for card in wall.cards}
    assert [card.name for card in wall.cards][:2] == ["bad", "well"]
    assert (by_name["bad"].state, by_name["bad"].change) == ("worse", "+20.0%")
    assert by_name["bad"].figure == "2.00 ms"
    assert by_name["well"].state == "doubtful"
    assert by_name["well"].address == "/trends?name=well"
    assert len(by_name["well"].curve) == 1
    inspected = next(card for card in wall.cards if card.address == f"/results/{'e' * 12}")
    assert "parameters" in inspected.figure
    assert inspected.curve == ()


def test_the_wall_of_a_store_with_many_results_of_one_model_has_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though none of them is among the newest results; the reference model has no card."""
    monkeypatch.setattr("modeldyno.dashboard.model_wall.NEWEST", 3)
    with plugins.store(f"sqlite:///{tmp_path}/store.db") as store:
        put(store, a_result(id="a" * 12, name="old", created="2020-01-01"))
        put(store, a_result(id="b" * 12, name="canary", created="2020-01-02"))
        for number in range(4):
            put(store, a_result(id=f"{number:02x}" * 6, name="busy"))
        (wall,) = model_wall(store, store.find(limit=3), [])

    assert [card.name for card in wall.cards] == ["busy", "old"]


def test_the_overview_asks_for_each_thing_once(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest results, and what is installed here: what is stale is judged at each read all the same."""
    calls: list[str] = []
    find = type(filled).find

    def count_find(self: Store, **how: Any) -> Any:
        calls.append("results")
        return find(self, **how)

    def count_software() -> Any:
        calls.append("software")
        return software_here()

    monkeypatch.setattr(type(filled), "find", count_find)
    monkeypatch.setattr("modeldyno.registry.figures.software_here", count_software)
    for _ in range(2):
        calls.clear()
        home(PageRequest(store=filled, regressions=tuple))

        assert sorted(calls) == ["results", "software"]


def test_the_measurements_of_a_version_are_named_before_their_ids(tmp_path: Path) -> None:
    """What was measured leads to the document, and the answer of the version is the heading of its page."""
    with plugins.store(f"sqlite:///{tmp_path}/store.db") as store:
        registry, target = store.registry, target_here()
        registry.put_target(target)
        version, _ = registry.add_version(a_version())
        registry.put_variant(a_variant(version), "ada")
        visitor = visitor_of(store)
        assert "<h1>digits/1 is not timed yet</h1>" in visitor.read("/models/digits/1")
        for number, digit in enumerate("ab"):
            result = a_result(id=digit * 12, samples=[0.001 + number / 1000] * 3000)
            assert result.model is not None
            put(store, replace(result, model=replace(result.model, digest=version.digest)))
        task = replace(a_task(version), target=target.id)
        registry.put_figures([a_figure(task, target=target.id, result="a" * 12, software={})])
        fresh = visitor.read("/models/digits/1")
        stale = a_figure(
            task, target=target.id, result="a" * 12, software={}, state=FigureState.STALE, why="old"
        )
        registry.put_figures([stale])
        text = visitor.read("/models/digits/1")

    answer = f"digits/1 answers in 1.00 ms as source, batch 1 on {target.name}"
    assert f"<h1>{answer}</h1>" in fresh
    assert f"<h1>{answer}, which is stale</h1>" in text
    assert f'<a href="/results/{"a" * 12}">source</a>' in text
    assert f'<a href="/results/{"b" * 12}">result</a>' in text
    assert "bbbbbb</a></td></tr>" in text  # the last column


def test_all_alerts_are_listed(visitor: Visitor) -> None:
    """The first page has the first ones, and leads to the others."""
    listed = visitor.json("/alerts")
    text = visitor.read("/alerts")

    assert {one["state"] for one in listed} == {"failed", "stale"}
    assert "<h1>Needs attention: 1 failed, 1 stale</h1>" in text
    assert listed == visitor.json("/")["attention"]


def test_the_answer_can_be_shared(visitor: Visitor) -> None:
    """Its address holds the question, and the form shows it again."""
    text = visitor.read(EXAMPLES["/models/{name}/answer"])

    assert "latency.p50 &lt;= 20ms</textarea>" in text
    assert 'type="number" min="0" step="any" value="200"' in text


def test_numbers_are_typed_without_scripts(visitor: Visitor) -> None:
    """A latency in milliseconds is a bound, a price without its hour is one; the link has what was asked."""
    answer = visitor.json("/models/digits/answer?p99=20&demand=200&price=1.2")
    text = visitor.read("/models/digits/answer?p99=20&price=1.2")

    assert answer["bounds"] == ["latency.p99 <= 20 ms"]
    assert answer["demand"] == 200
    assert answer["price"]["per_hour"] == 1.2
    assert '<a href="/models/digits/answer?p99=20&amp;price=1.2">Link to this question</a>' in text


def test_a_price_with_a_currency_stays_a_text(visitor: Visitor) -> None:
    """As no number has a currency."""
    text = visitor.read("/models/digits/answer?price=%241.2/h")

    assert 'value="$1.2"' in text


def test_all_that_holds_is_ranked(tmp_path: Path) -> None:
    """The answer is the first of the ranking, with its cost."""
    with plugins.store(f"sqlite:///{tmp_path}/store.db") as store:
        registry, target = store.registry, target_here()
        registry.put_target(target)
        version, _ = registry.add_version(a_version())
        variant = a_variant(version)
        registry.put_variant(variant, "ada")
        software: dict[str, str | int | float | bool] = {"onnxruntime": metadata.version("onnxruntime")}
        for batch in (1, 8):
            result = a_result(id=f"{batch:02x}" * 6)
            put(store, result)
            task = replace(a_task(version, batch=batch), target=target.id)
            figure = a_figure(task, target=target.id, result=result.id)
            registry.put_figures([replace(figure, software=software, taken=datetime.now(UTC).isoformat())])
        text = visitor_of(store).read("/models/digits/answer?price=1.2")

    assert "What holds, the best first" in text
    assert text.count("1.20") >= 2


def test_a_wrong_bound_is_said_beside_the_form(visitor: Visitor) -> None:
    """Whoever mistypes can correct it."""
    answer = visitor.get("/models/digits/answer?require=latency.p99+%3C%3D+20")

    assert answer.status_code == 400
    assert "latency.p99 &lt;= 20</textarea>" in answer.text


def test_the_description_names_every_operation(visitor: Visitor) -> None:
    """OpenAPI has each JSON twin and what its query may hold, and each write, which needs a token."""
    described = visitor.get(f"{API}/openapi.json").json()["paths"]
    operations = [
        (one, path, described_as) for path, each in described.items() for one, described_as in each.items()
    ]

    assert sum(method == "get" for method, _, _ in operations) == len(PAGES)
    writes = {(one.upper(), path) for one, path, described_as in operations if "security" in described_as}
    assert writes == {(write.method, API + write.path) for write in API_WRITES}
    assert len(operations) == len(PAGES) + len(API_WRITES)
    for method, _, operation in operations:
        for parameter in operation["parameters"] if method == "get" else ():
            assert parameter["in"] == "path" or parameter["description"] == QUERY[parameter["name"]]


@pytest.mark.parametrize("path", TYPES)
def test_a_twin_holds_what_the_description_says(visitor: Visitor, path: str) -> None:
    """Its JSON is of the schema of its operation."""
    described = visitor.get(f"{API}/openapi.json").json()
    operation = described["paths"][API + ("/home" if path == "/" else path)]["get"]
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]

    jsonschema.validate(visitor.json(example(path)), {**schema, "components": described["components"]})


def test_nothing_that_writes_can_be_asked_for(visitor: Visitor) -> None:
    """A write is a POST: GET of its path is another page, or none."""
    for writing in WRITES:
        path = writing.path.replace("{id}", "010101010101").replace("{name}", "digits")
        before = visitor.store.change_mark()
        assert visitor.get(f"{path}?do=add&tag=x&alias=x&task=1").status_code in {200, 404, 405}
        assert visitor.store.change_mark() == before


ODD = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.sampled_from(
        ["../../etc/passwd", "%00", "\0", "digits/../..", "1" * 40, "-1", "1e9", "' OR 1=1 --", "%", "_", "@",
         "champion", "digits", "digits@x", "2026-01-01T00:00:00/zz", "/", "//", "\u202e", "models:/digits/1",
         "latency.p99 <= 20ms and latency.p50 <= 1ms", "latency", "<= 5ms", "NaN/s", "-1/s", "inf/h"]
    ),
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(PAGES), st.data())
def test_whatever_is_asked_for_no_page_fails(visitor: Visitor, route: PageRoute, data: st.DataObject) -> None:
    """Any text in the path and the query is answered, or refused in a sentence."""
    path = route.path
    while "{" in path:
        part = path[path.index("{") : path.index("}") + 1]
        path = path.replace(part, quote(data.draw(ODD), safe="") or "x")
    query = data.draw(st.lists(st.tuples(st.sampled_from((*route.query, "x")), ODD), max_size=4))
    address = f"{path}?{urlencode(query)}"

    assert visitor.get(address).status_code in {200, 400, 404}
    twin = visitor.get(API + ("/home" if path == "/" else address))
    assert twin.status_code in {200, 400, 404}
    assert twin.headers["content-type"] == "application/json"


def test_results_are_searched_by_the_conditions_of_the_command_line(visitor: Visitor) -> None:
    """What cannot be read is said in a sentence, above the box that still has it."""
    failed = visitor.json("/results?where=failed")["items"]
    others = visitor.json("/results?where=not+failed")["items"]

    assert [entry["failed"] for entry in failed] == [True]
    assert not any(entry["failed"] for entry in others)
    assert others
    wrong = visitor.get("/results?where=latncy.p50+%3C+5ms")
    assert wrong.status_code == 400
    assert "did you mean" in wrong.text
    assert 'value="latncy.p50 &lt; 5ms"' in wrong.text


def test_a_version_whose_median_is_not_certified_is_told_by_what_was_seen(visitor: Visitor) -> None:
    """The heading agrees with the figures below it, and says that they are about what was seen."""
    assert "<h1>digits/2 answers in about 1.3 ms as source, batch 1 on here" in visitor.read(
        "/models/digits/2"
    )
    assert "<h1>digits/2 answers in about 1.3 ms" in visitor.read("/models/digits")


def test_models_are_listed_with_the_figures_of_their_newest_results(tmp_path: Path) -> None:
    """In columns, with how they were measured, and how many results there are."""
    with plugins.store(f"sqlite:///{tmp_path}/store.db") as store:
        for number in range(2):
            created = f"2026-01-0{number + 1}T00:00:00+00:00"
            samples = [0.001 * (number + 1)] * 3000
            put(store, a_result(id=f"{number:02x}" * 6, name="net", samples=samples, created=created))
        rows = visitor_of(store).get("/models.csv").text

    assert rows.splitlines()[1:] == [
        'net,2.00 ms,2.00 ms,"6,200/s","onnxruntime, batch 8",2,2026-01-02 00:00'
    ]


def test_the_heading_of_a_sweep_is_what_its_best_configuration_gives() -> None:
    """Its many settings stand below it with the rest; few of them are in the heading."""
    settings = ", ".join(f"knob_{number}=8" for number in range(12))
    gives, rest = (
        "throughput 9/s, at latency.p99 3 ms <= 5 ms",
        "84% certain; 8 measurements over 4 configurations.",
    )

    assert split_heading(f"{settings} gives {gives}; {rest}") == (
        "Throughput 9/s, at latency.p99 3 ms <= 5 ms.",
        f"With {settings}; {rest}",
    )
    title, _ = split_heading(f"threads=2 gives {gives}; {rest}")
    assert title == f"threads=2 gives {gives}."


def test_documents_side_by_side_are_named_by_their_models(tmp_path: Path) -> None:
    """Those of one model have their ids as well; the heading says which is the fastest."""
    with plugins.store(f"sqlite:///{tmp_path}/store.db") as store:
        for number, name in enumerate(("net", "net", "other"), 1):
            put(store, a_result(id=f"{number:012x}", name=name, samples=[number / 1000] * 50))
        visitor = visitor_of(store)
        page = visitor.read(f"/compare?with={1:012x}&with={2:012x}&with={3:012x}")

    assert "<h1>net (1) answers the soonest of 3, by latency.p50</h1>" in page
    assert f'<a href="/results/{3:012x}">other</a>' in page
    assert f'<a href="/results/{1:012x}">net (000000000001)</a>' in page


def test_alerts_of_one_reason_share_a_row_above_the_wall() -> None:
    """The row leads to all of them; on their own page each has its own."""
    stale = [Attention("stale", f"net/{n}", "here", "a new driver", f"/models/net/{n}") for n in range(4)]
    worse = Attention("worse", "other", "", "it is slower", "/trends?name=other", "+20.0%")
    strip = attention_table([worse, *stale], 5)
    alone = attention_table([worse, *stale], 1)
    whole = attention_table([worse, *stale])

    (table,) = (block for block in strip.blocks if isinstance(block, Table))
    assert [row[0] for row in table.rows] == ["other", "net/0 and 3 more"]
    assert strip.links.links["what"] == {"other": "/trends?name=other", "net/0 and 3 more": "/alerts"}
    notes = [block.text for block in alone.blocks if isinstance(block, Notice)]
    assert notes == ["4 more alerts under Trends and alerts"]
    assert [len(block.rows) for block in whole.blocks if isinstance(block, Table)] == [5]
