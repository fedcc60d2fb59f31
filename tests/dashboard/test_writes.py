"""What the forms of the dashboard do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.dashboard.conftest import PORT, fill_registry, put, visitor_of

from modeldyno import plugins
from modeldyno.core.registry.records import TaskState
from modeldyno.testing.sample_results import a_result

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.dashboard.conftest import Visitor

RESULT = "0123456789ab"
FORMS = {
    f"/results/{RESULT}/tags": {"do": "add", "tag": "x"},
    "/models/digits/aliases": {"do": "move", "alias": "best", "number": "1"},
    "/tasks": {"do": "cancel", "task": "2"},
}


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Visitor]:
    """Look at a store of one's own."""
    with plugins.store(f"sqlite:///{tmp_path}/store.db") as store:
        put(store, a_result(id=RESULT))
        fill_registry(store)
        yield visitor_of(store)


def test_a_result_is_tagged(operator: Visitor) -> None:
    """A tag is added and removed, and the page of the result shows it."""
    answer = operator.send(f"/results/{RESULT}/tags", f"/results/{RESULT}", do="add", tag="nightly")
    assert answer.status_code == 303
    assert answer.headers["location"] == f"/results/{RESULT}"
    assert "tag: nightly" in operator.read(f"/results/{RESULT}")

    operator.send(f"/results/{RESULT}/tags", f"/results/{RESULT}", do="remove", tag="nightly")
    assert operator.store.find()[0].tags == ()


def test_an_alias_is_set_and_rolled_back_and_removed(operator: Visitor) -> None:
    """As modeldyno registry alias does."""
    for words, named in (
        ({"do": "move", "alias": "champion", "number": "1"}, {"champion": 1}),
        ({"do": "back", "alias": "champion"}, {"champion": 2}),
        ({"do": "remove", "alias": "champion"}, {}),
    ):
        answer = operator.send("/models/digits/aliases", "/models/digits", **words)
        assert answer.headers["location"] == "/models/digits"
        assert operator.store.registry.aliases("digits") == named


def test_tasks_are_cancelled_and_queued_again(operator: Visitor) -> None:
    """Those that were ticked."""
    registry = operator.store.registry
    chosen = [str(task.id) for task in registry.tasks(states=(TaskState.QUEUED,))]

    operator.send("/tasks", "/tasks", do="cancel", task=chosen)
    assert registry.tasks(states=(TaskState.QUEUED,)) == []

    operator.send("/tasks", "/tasks?all=yes", do="retry", task=chosen[:1])
    assert [str(task.id) for task in registry.tasks(states=(TaskState.QUEUED,))] == chosen[:1]


@pytest.mark.parametrize("path", FORMS)
@pytest.mark.parametrize("token", [None, "", "0" * 64, "é"])
def test_a_form_without_its_token_is_refused(operator: Visitor, path: str, token: str | None) -> None:
    """And nothing is written."""
    operator.read("/")
    before = operator.store.change_mark()
    words = FORMS[path] if token is None else {**FORMS[path], "token": token}

    answer = operator.client.post(path, data=words, headers={"origin": f"http://127.0.0.1:{PORT}"})

    assert answer.status_code == 403
    assert operator.store.change_mark() == before


@pytest.mark.parametrize("path", FORMS)
def test_a_token_is_worth_nothing_in_another_browser(operator: Visitor, path: str) -> None:
    """It belongs to the cookie of the page that it stood on."""
    text = operator.read("/tasks")
    token = text.partition('name="token" value="')[2].partition('"')[0]
    operator.client.cookies.clear()
    before = operator.store.change_mark()

    assert operator.client.post(path, data={**FORMS[path], "token": token}).status_code == 403
    assert operator.store.change_mark() == before


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none"])
def test_a_page_of_another_site_cannot_write(operator: Visitor, site: str) -> None:
    """As the browser itself says where the request comes from."""
    answer = operator.client.post("/tasks", data=FORMS["/tasks"], headers={"sec-fetch-site": site})

    assert answer.status_code == 403


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (f"/results/{RESULT}/tags", {"do": "add", "tag": ""}),
        (f"/results/{RESULT}/tags", {"do": "delete", "tag": "x"}),
        ("/results/none/tags", {"do": "add", "tag": "x"}),
        ("/models/digits/aliases", {"do": "move", "alias": "../x", "number": "1"}),
        ("/models/digits/aliases", {"do": "move", "alias": "best", "number": "99"}),
        ("/models/digits/aliases", {"do": "move", "alias": "best", "number": "x"}),
        ("/models/none/aliases", {"do": "back", "alias": "best"}),
        ("/models/digits/aliases", {"alias": "best"}),
        ("/tasks", {"do": "cancel"}),
        ("/tasks", {"do": "cancel", "task": "1; DROP TABLE tasks"}),
        ("/tasks", {"do": "run", "task": "1"}),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    operator: Visitor, path: str, words: dict[str, str]
) -> None:
    """With 400, and nothing is written."""
    shown_at = "/tasks"
    events = len(operator.store.registry.events())

    answer = operator.send(path, shown_at, **words)

    assert answer.status_code == 400
    assert "<h1>That cannot be done</h1>" in answer.text
    assert len(operator.store.registry.events()) == events


@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data; boundary=x", "text/plain", ""])
def test_only_forms_are_taken(operator: Visitor, kind: str) -> None:
    """Another kind of body is refused before it is read."""
    answer = operator.client.post("/tasks", content=b"do=cancel&task=2", headers={"content-type": kind})

    assert answer.status_code == 413


def test_a_long_form_is_refused(operator: Visitor) -> None:
    """Whoever sends a megabyte does not fill the memory."""
    assert operator.client.post("/tasks", data={"task": "1" * 1_000_000}).status_code == 413
