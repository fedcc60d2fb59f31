"""Test suites that every backend must pass: for a local runtime, and for a server.

Inherit, name the backend, and provide a model and its inputs::

    from modeldyno.testing.backends import BackendSuite

    class TestMyRuntime(BackendSuite):
        name = "myruntime"

        @pytest.fixture
        def model(self, tmp_path: Path) -> Model:
            return plugins.loader("myformat").load(save_a_model(tmp_path), seed=0, trust=True)

        def feed(self, batch_size: int) -> Feed:
            return {"x": np.random.default_rng(0).random((batch_size, 4), dtype="float32")}

`ServingSuite` does the same for a backend whose session sends requests. It starts real servers; its cheap
part is `DeclaredSuite`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.job.knob import configure
from modeldyno.base.system.process_tree import list_process_tree
from modeldyno.engine.interfaces.session import LocalSession, RequestSession
from modeldyno.serving.loadgen.single_request import send_once
from modeldyno.testing.loaders import imported_frameworks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modeldyno.base.job.knob import Knob, KnobValue
    from modeldyno.engine.interfaces.backend import Backend
    from modeldyno.engine.interfaces.server_stats import ServerCounters
    from modeldyno.models.interface import Feed, Model

_SETTLING_TIME = 0.2
"""Seconds after which a server has counted the requests that it has answered."""


@contextmanager
def open_local_session(
    backend: Backend, model: Model, config: dict[str, KnobValue]
) -> Iterator[LocalSession]:
    """Open a session of a local runtime."""
    with backend.open(model, config) as session:
        assert isinstance(session, LocalSession)
        yield session


class DeclaredSuite:
    """Checks what a backend declares. Inherit, set `name`, and provide the fixture `model`."""

    name: ClassVar[str]
    """The name of the backend's entry point."""
    settings: ClassVar[Mapping[str, KnobValue]] = {}
    """Knobs to run the model with."""

    @pytest.fixture
    def model(self) -> Model:
        """Return a small model that the backend accepts."""
        raise NotImplementedError

    @pytest.fixture
    def backend(self) -> Backend:
        """Return the plugin, by its entry point."""
        return plugins.backend(self.name)

    @pytest.fixture
    def config(self, backend: Backend) -> dict[str, KnobValue]:
        """Return the complete configuration."""
        return configure(backend.knobs, self.settings)

    def test_importing_it_is_cheap(self) -> None:
        """Importing the plugin imports no framework."""
        assert imported_frameworks("backend", self.name) == []

    def test_says_what_it_needs_and_accepts(self, backend: Backend, model: Model) -> None:
        """A backend names its modules and the forms that it accepts, and the model is of one of them."""
        assert all(isinstance(name, str) for name in backend.requires)
        assert isinstance(backend.accepts, frozenset)
        assert model.form in backend.accepts
        assert "no such form" not in backend.accepts

    def test_knobs_are_declared(self, backend: Backend) -> None:
        """Each knob has a name of its own, a sentence, and a default that it takes itself."""
        names = [name for knob in backend.knobs for name in (knob.name, *knob.aliases)]
        assert len(set(names)) == len(names)
        for knob in backend.knobs:
            assert knob.sentence.endswith(".")
            assert knob.default is None or knob.parse(knob.default) == knob.default

    def test_misspelt_knob_gets_a_suggestion(self, backend: Backend) -> None:
        """A knob that is misspelt is refused with the right name."""
        for knob in backend.knobs:
            with pytest.raises(UnknownName, match=f"did you mean '{knob.name}'"):
                configure(backend.knobs, {knob.name + "x": 1})

    def test_value_out_of_range_is_refused(self, backend: Backend) -> None:
        """A value that a knob does not take is refused before anything is opened."""
        for knob, value in _bad_values(backend.knobs):
            with pytest.raises(RequestError):
                configure(backend.knobs, {knob.name: value})

    def test_defaults_pass_the_check(self, backend: Backend, config: dict[str, KnobValue]) -> None:
        """The default configuration, and the one under test, exclude nothing."""
        backend.check(configure(backend.knobs, {}))
        backend.check(config)


class BackendSuite(DeclaredSuite):
    """Inherit, set `name`, and provide the fixture `model` and the method `feed`; the rest is optional."""

    dynamic: ClassVar[bool] = True
    """Whether the model accepts any batch size."""
    tolerance: ClassVar[float] = 1e-6
    """Largest difference between two calls on the same payload, absolute and relative."""

    def feed(self, batch_size: int) -> Feed:
        """Return inputs for the model; the same each time."""
        raise NotImplementedError

    def state(self) -> Any:
        """Return process-wide state that the backend may change, such as threads or grad mode."""
        return None

    def test_a_call_can_be_repeated(
        self, backend: Backend, model: Model, config: dict[str, KnobValue]
    ) -> None:
        """A prepared call gives the same named numpy arrays each time that it is made."""
        with open_local_session(backend, model, config) as session:
            assert isinstance(session, LocalSession)
            call = session.prepare(self.feed(2))
            first, second = (session.arrays(call()) for _ in range(2))
        assert first
        assert all(isinstance(array, np.ndarray) for array in first.values())
        self.assert_same(first, second)

    def test_prepared_calls_keep_their_payloads(
        self, backend: Backend, model: Model, config: dict[str, KnobValue]
    ) -> None:
        """Two prepared calls can be cycled through: each goes on with its own payload."""
        feed = self.feed(2)
        turned = {name: array[::-1].copy() for name, array in feed.items()}
        with open_local_session(backend, model, config) as session:
            calls = [session.prepare(feed), session.prepare(turned)]
            before = [session.arrays(call()) for call in calls]
            after = [session.arrays(call()) for call in calls]
        for one, other in zip(before, after, strict=True):
            self.assert_same(one, other)

    def test_the_payload_is_left_as_it_was(
        self, backend: Backend, model: Model, config: dict[str, KnobValue]
    ) -> None:
        """Preparing and calling do not change the feed."""
        feed = self.feed(2)
        copies = {name: array.copy() for name, array in feed.items()}
        with open_local_session(backend, model, config) as session:
            session.prepare(feed)()
        assert all(np.array_equal(feed[name], copies[name]) for name in copies)

    def test_other_batch_sizes(self, backend: Backend, model: Model, config: dict[str, KnobValue]) -> None:
        """A dynamic model takes another batch size in the same session."""
        if not self.dynamic:
            pytest.skip("this model has one batch size")
        with open_local_session(backend, model, config) as session:
            shapes = [
                {name: a.shape for name, a in session.arrays(session.prepare(self.feed(n))()).items()}
                for n in (2, 3)
            ]
        assert shapes[0].keys() == shapes[1].keys()
        assert shapes[0] != shapes[1]

    def test_closing_restores_the_process(
        self, backend: Backend, model: Model, config: dict[str, KnobValue]
    ) -> None:
        """What a session changes for the whole process is as before when it closes, even by an error."""
        before = self.state()
        with open_local_session(backend, model, config) as session:
            session.prepare(self.feed(2))()
        assert self.state() == before
        with pytest.raises(ZeroDivisionError), open_local_session(backend, model, config):
            raise ZeroDivisionError
        assert self.state() == before

    def test_opens_again(self, backend: Backend, model: Model, config: dict[str, KnobValue]) -> None:
        """A model that was opened and closed can be opened again and gives the same outputs."""
        outputs = []
        for _ in range(2):
            with open_local_session(backend, model, config) as session:
                outputs.append(session.arrays(session.prepare(self.feed(2))()))
        self.assert_same(*outputs)

    def test_a_borrowed_model_is_left_as_found(
        self, backend: Backend, model: Model, config: dict[str, KnobValue]
    ) -> None:
        """A session leaves the weights of a borrowed model alone."""
        if model.weights is None:
            pytest.skip("this model shows no weights")
        borrowed = replace(model, borrowed=True)
        before = tuple(model.weights())
        with open_local_session(backend, borrowed, config) as session:
            session.prepare(self.feed(2))()
        assert tuple(model.weights()) == before

    def assert_same(self, first: Feed, second: Feed) -> None:
        """Assert that two outputs have the same names, shapes and values, within `tolerance`."""
        assert list(first) == list(second)
        for name, array in first.items():
            np.testing.assert_allclose(
                array, second[name], rtol=self.tolerance, atol=self.tolerance, err_msg=name
            )


class ServingSuite(DeclaredSuite):
    """For a backend whose session sends requests. It starts servers: mark subclasses accordingly."""

    tolerance: ClassVar[float] = 1e-5
    """Largest difference between two answers to the same payload, absolute and relative."""
    local: ClassVar[str] = "onnxruntime"
    """A local backend with the same outputs; empty if there is none."""

    def feed(self, batch_size: int) -> Feed:
        """Return inputs for the model; the same each time."""
        raise NotImplementedError

    def test_answers_are_those_of_the_model(
        self, backend: Backend, model: Model, config: dict[str, KnobValue]
    ) -> None:
        """Each payload is a request, and its answer what a local runtime gives for it."""
        if not self.local:
            pytest.skip("no local backend has the same outputs")
        feeds = [self.feed(2), {name: array[::-1].copy() for name, array in self.feed(2).items()}]
        local = plugins.backend(self.local)
        with backend.open(model, {**config, "batch_size": 2}) as session:
            assert isinstance(session, RequestSession)
            target = session.target(feeds)
            assert len(target.messages) == len(feeds)
            answers = [session.arrays(send_once(target, number)) for number in range(len(feeds))]
        with local.open(model, configure(local.knobs, {})) as own:
            assert isinstance(own, LocalSession)
            expected = [own.arrays(own.prepare(feed)()) for feed in feeds]
        for answer, right in zip(answers, expected, strict=True):
            self.assert_same(answer, right)

    def test_requests_at_the_same_time_get_their_own_answers(
        self, backend: Backend, model: Model, config: dict[str, KnobValue]
    ) -> None:
        """However the server gathers requests, each gets the answer to its own payload."""
        feeds = [{name: array * (number + 1) for name, array in self.feed(1).items()} for number in range(8)]
        with backend.open(model, config) as session:
            assert isinstance(session, RequestSession)
            target = session.target(feeds)
            alone = [session.arrays(send_once(target, number)) for number in range(len(feeds))]
            with ThreadPoolExecutor(len(feeds)) as pool:
                together = [
                    session.arrays(reply) for reply in pool.map(partial(send_once, target), range(len(feeds)))
                ]
        for one, other in zip(together, alone, strict=True):
            self.assert_same(one, other)

    def test_the_account_counts_requests(
        self, backend: Backend, model: Model, config: dict[str, KnobValue]
    ) -> None:
        """Between two looks there are as many requests as were sent, and their stages took time."""
        with backend.open(model, config) as session:
            assert isinstance(session, RequestSession)
            if not session.has_statistics:
                pytest.skip("this server tells nothing of its work")
            target = session.target([self.feed(1)])
            send_once(target)
            before = _settled_counters(session)
            for _ in range(5):
                send_once(target)
            counters = _settled_counters(session).since(before)
        assert counters.requests == (5 if before.requests else 0), "a server that counts none has 0 always"
        assert counters.failures == 0
        assert counters.compute is None or counters.compute > 0
        assert not counters.batches or sum(counters.batches.values()) == counters.executions

    def test_nothing_is_left(self, backend: Backend, model: Model, config: dict[str, KnobValue]) -> None:
        """When a session is closed, even by an error, none of its processes is left."""
        family: list[int] = []

        def break_off(session: object) -> None:
            assert isinstance(session, RequestSession)
            family.extend([] if session.pid is None else list_process_tree(session.pid))
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError), backend.open(model, config) as session:
            break_off(session)
        assert not any(Path(f"/proc/{pid}").exists() for pid in family)

    def assert_same(self, answer: Feed, right: Feed) -> None:
        """Assert that an answer has these names, shapes and texts, or values within `tolerance`."""
        assert answer.keys() == right.keys()
        for name, array in right.items():
            assert answer[name].shape == array.shape
            if array.dtype == object:
                assert answer[name].tolist() == array.tolist()
            else:
                np.testing.assert_allclose(answer[name], array, rtol=self.tolerance, atol=self.tolerance)


def _settled_counters(session: RequestSession) -> ServerCounters:
    """Read the counters until they stop changing: a server may count a request after answering it."""
    counters = session.account()
    while True:
        sleep(_SETTLING_TIME)
        before, counters = counters, session.account()
        if before.requests == counters.requests:
            return counters


def _bad_values(knobs: tuple[Knob, ...]) -> list[tuple[Knob, KnobValue]]:
    below = [(knob, knob.low - 1) for knob in knobs if knob.low is not None]
    above = [(knob, knob.high + 1) for knob in knobs if knob.high is not None]
    odd = [(knob, "no such value") for knob in knobs if knob.choices or knob.kind is not str]
    return [*below, *above, *odd]
