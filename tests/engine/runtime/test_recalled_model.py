from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.stand_ins import use_plugin

from modeldyno.base.errors import RequestError
from modeldyno.base.job.job import Job
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.engine.runtime.engine import run
from modeldyno.models.interface import Model
from modeldyno.testing.fakes import a_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class _Place:
    """A loader of models of torch and a server for them, which note what is asked of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.source, self.kept = "sha256:a", dict[str, Model]()
        self.loads, self.opened = 0, list[Model]()
        self.change: Callable[[], None] = lambda: None
        self.lacks_torch = False
        self.model = replace(a_model(), form="torch")
        loader = SimpleNamespace(
            requires=(), backend="torch", load=self._load, source_digest=lambda _ref: self.source
        )
        server = SimpleNamespace(
            requires=(), accepts={"torch"}, serves=True, open=self._open, recall=self._recall,
            check_torch=self._check_torch,
        )  # fmt: skip
        use_plugin(monkeypatch, "loader", loader)
        use_plugin(monkeypatch, "backend", server)

    def _load(self, _ref: ModelRef, **_options: Any) -> Model:
        self.loads += 1
        self.change()
        return self.model

    def _recall(self, source: str, _load: Callable[[], Model]) -> Model | None:
        return self.kept.get(source)

    def _check_torch(self, _config: Mapping[str, Any]) -> None:
        if self.lacks_torch:
            raise RequestError("no torch")

    @contextmanager
    def _open(self, model: Model, _config: Mapping[str, Any]) -> Iterator[None]:
        self.opened.append(model)
        self.kept[model.source] = model
        yield


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> _Place:
    return _Place(monkeypatch)


def start(*probes: str) -> None:
    """Run a Job up to its first call, which fails."""
    run(Job(model=ModelRef(scheme="hf", locator="folder"), backend="triton", probes=probes))


def test_a_model_that_is_kept_is_not_loaded(place: _Place) -> None:
    """The second start of the same source loads nothing; a changed one is loaded."""
    start("load")
    start("load")
    assert place.loads == 1
    assert [model.source for model in place.opened] == ["sha256:a", "sha256:a"]
    place.source = "sha256:b"
    start("load")
    assert place.loads == 2
    assert place.opened[-1].source == "sha256:b"


def test_files_that_change_while_they_are_loaded_are_not_kept(place: _Place) -> None:
    """Neither what they were nor what they are stands for the model."""
    place.change = lambda: setattr(place, "source", "sha256:b")
    start("load")
    assert place.opened[0].source == ""


def test_a_probe_that_looks_at_the_model_gets_it_loaded(place: _Place) -> None:
    """A model that is kept is loaded for an analysis all the same."""
    start("load")
    start("static", "load")
    assert place.loads == 2


def test_a_server_without_torch_is_told_before_loading(place: _Place) -> None:
    """The error comes first; a job that only looks at the model needs no server."""
    place.lacks_torch = True
    with pytest.raises(RequestError, match="no torch"):
        start("load")
    assert place.loads == 0
    start("static")
    assert place.loads == 1
