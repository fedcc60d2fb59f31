"""A store with something of everything, made once for a module, and a browser without scripts."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from html import unescape
from typing import TYPE_CHECKING, Any

import pytest
from starlette.testclient import TestClient
from tests.support.sample_registry import a_conversion, a_figure, a_target, a_task, a_variant, a_version
from tests.support.sample_registry import a_worker as a_registry_worker

from modeldyno.base import plugins
from modeldyno.base.job.version_name import VersionName
from modeldyno.base.kinds import kind_of
from modeldyno.base.result.live_load import LiveLoad
from modeldyno.base.result.trace_data import LiveSecond
from modeldyno.dashboard.app import make_app
from modeldyno.registry.records.records import FigureState, TaskState, VariantState
from modeldyno.registry.targets import target_here
from modeldyno.stores.interface import Store
from modeldyno.testing.sample_conversions import a_conversion as a_conversion_document
from modeldyno.testing.sample_results import a_failed_result, a_result, an_inspection
from modeldyno.testing.sample_series import a_capacity, a_comparison, a_ladder
from modeldyno.testing.sample_studies import a_study

if TYPE_CHECKING:
    from collections.abc import Iterator


PORT = 8500
INSPECTED = "ab" * 6
"""Id of a result with modules."""
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


LIVE_LOAD = LiveLoad(
    id="abcabcabcabc",
    created="2026-01-01T00:00:00.000+00:00",
    name="digits",
    load="concurrency 8",
    seconds=(
        LiveSecond(at=0.0, answered=900, failed=0, p50=0.002, p99=0.009, worst=0.02, in_flight=8),
        LiveSecond(at=1.0, answered=0, failed=3, in_flight=8, waiting=40),
    ),
)
"""A load that goes on, and whose server hangs."""
LIVE_TOKENS = LiveLoad(
    id="bcabcabcabca",
    created="2026-01-01T00:00:01.000+00:00",
    name="llama",
    load="concurrency 4",
    seconds=(
        LiveSecond(
            at=0.0, answered=0, failed=0, in_flight=4, pieces=60.0, first_token=0.08, first_token_p99=0.2
        ),
        LiveSecond(
            at=1.0, answered=4, failed=1, p50=1.2, p99=1.3, worst=1.3, in_flight=4,
            pieces=100.0, tokens=200.0, first_token=0.09, first_token_p99=0.25, time_per_token=0.011,
        ),
        LiveSecond(at=2.0, answered=0, failed=0, in_flight=4, pieces=90.0, tokens=180.0),
    ),
)  # fmt: skip
"""A load of streamed answers of two tokens a piece: none of them began or ended in its last second."""


@dataclass(frozen=True)
class Visitor:
    """Somebody who looks at the dashboard of a store."""

    store: Store
    client: TestClient

    def get(self, path: str, **headers: str) -> Any:
        """Ask for a page."""
        return self.client.get(path, headers={name.replace("_", "-"): v for name, v in headers.items()})

    def read(self, path: str) -> str:
        """Ask for a page that is there, and return its text."""
        answer = self.get(path)
        assert answer.status_code == 200, (path, answer.text[-2000:])
        return str(answer.text)

    def json(self, path: str) -> Any:
        """Ask for the JSON twin of a page."""
        answer = self.get("/api/v1" + ("/home" if path == "/" else path))
        assert answer.status_code == 200, (path, answer.text[:500])
        return answer.json()

    def send(self, path: str, shown_at: str, **form: Any) -> Any:
        """Send a form that is on a page, with its token."""
        token = re.search(r'name="token" value="([^"]+)"', self.read(shown_at))
        assert token is not None
        fields = {"token": token[1], **form}
        return self.client.post(path, data=fields, follow_redirects=False)

    def send_file(self, file: tuple[str, bytes] | None, **form: Any) -> Any:
        """Send the form that registers a model, with its token."""
        token = re.search(r'name="token" value="([^"]+)"', self.read("/models"))
        assert token is not None
        fields = {"token": token[1], **form}
        parts = {"file": ("", b"")} if file is None else {"file": file}
        return self.client.post("/models", data=fields, files=parts, follow_redirects=False)


def links_of(text: str) -> list[str]:
    """Return the addresses that a page leads to on this server."""
    links = (unescape(link) for link in re.findall(r'<a href="(/[^"]*)"', text))
    return [link for link in dict.fromkeys(links) if not link.startswith(("/static", "/api"))]


def visitor_of(store: Store) -> Visitor:
    """Open the dashboard of a store."""
    app = make_app(store, PORT, moment=0.0)
    return Visitor(store, TestClient(app, base_url=f"http://127.0.0.1:{PORT}"))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Give a store that has something of everything."""
    with plugins.store(f"sqlite:///{tmp_path_factory.mktemp('dashboard')}/store.db") as store:
        fill(store)
        yield store


@pytest.fixture(scope="module")
def visitor(filled: Store) -> Visitor:
    """Look at the store that has something of everything."""
    return visitor_of(filled)


@pytest.fixture
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    """Look at a store that is not there yet."""
    with plugins.store(f"sqlite:///{tmp_path_factory.mktemp('empty')}/store.db") as store:
        yield visitor_of(store)


def fill(store: Store) -> None:
    """Put something of everything into a store."""
    for document in (a_ladder(), a_capacity(), a_comparison(), a_conversion_document()):
        store.put_conclusion(document, headline=kind_of(document).brief(document))
    study = a_study()
    store.put_study(study, headline=kind_of(study).brief(study))
    for n in range(30):
        put(store, a_result(id=f"{n:02x}" * 6, created=f"2026-01-01T00:00:{n:02}+00:00"))
    put(store, an_inspection(id=INSPECTED, created="2025-12-31"))
    put(store, a_failed_result(id="f" * 12, created="2026-01-02T00:00:00+00:00"))
    put(store, a_result(id="e" * 12, name=HOSTILE, created="2025-01-01"))
    fill_registry(store)
    store.put_live_load(LIVE_LOAD)
    store.put_live_load(LIVE_TOKENS)


def put(store: Store, result: Any) -> None:
    """Store a result with its headline."""
    store.put(result, headline=kind_of(result).brief(result))


def fill_registry(store: Store) -> None:
    """Register two versions of a model with figures, tasks, aliases and a worker."""
    registry = store.registry
    target = replace(target_here(), name="here")
    registry.announce(replace(a_registry_worker(), target=target.id), target)
    for number in (1, 2):
        version, _ = registry.add_version(
            a_version(number=number, policy="default", parent="digits/1" if number > 1 else "")
        )
        registry.put_variant(a_variant(version), "ada")
        differing = a_variant(version, "onnx-int8", state=VariantState.DIFFERS, why="by 3 %")
        registry.put_variant(replace(differing, conversion_id=a_conversion_document().id), "ada")
        task = replace(a_task(version), target=target.id)
        # Of no package, so that it is fresh whatever is installed here.
        figure = a_figure(task, target=target.id, result=f"{number:02x}" * 6, software={})
        registry.put_figures([figure])
    version = registry.version(VersionName(model="digits", number=2))
    stale = replace(a_task(version, batch=8), target=target.id)
    registry.put_figures(
        [
            a_figure(
                stale, target=target.id, result="03" * 6, state=FigureState.STALE, why="onnxruntime changed"
            )
        ]
    )
    registry.enqueue((a_task(version, batch=1), a_task(version, batch=8), a_conversion(version)))
    (first, *_others) = registry.tasks()
    registry.change_tasks((first.id,), TaskState.CANCELLED, "ada")
    registry.move_alias("digits", "champion", 1, "ada")
    registry.move_alias("digits", "champion", 2, "ada")
    registry.put_target(a_target(name="another"))
