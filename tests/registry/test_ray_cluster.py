"""Machines of a Ray cluster do what is queued; Ray is played, its machines are this process."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.registry import ONCE

from modeldyno.base import plugins
from modeldyno.base.errors import MissingExtra, RequestError, RunFailed, StoreUnavailable
from modeldyno.registry import ray_cluster
from modeldyno.registry.figures import current_figures
from modeldyno.registry.ray_cluster import do_next, run_on_ray
from modeldyno.registry.records.records import FigureState, TaskState
from modeldyno.registry.register import Registration, register

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from modeldyno.registry.interface import Registry
    from modeldyno.registry.worker import TaskDone


class _RayError(Exception):
    pass


@dataclass
class PlayedRay:
    """What of Ray is used; a call is made at once, in this process, unless its machine is lost."""

    machines: tuple[str, ...] = ("one",)
    addresses: tuple[str, ...] = ("192.0.2.1",)
    unreachable: str = ""
    gone_after: float = float("inf")
    """Lists of machines after which the cluster is lost."""
    lost: int = 0
    """How many of the first calls fail, as their machine is lost."""
    calls: list[dict[str, Any]] = field(default_factory=list)
    ended: bool = False
    exceptions: Any = field(default_factory=lambda: SimpleNamespace(RayError=_RayError))

    def init(self, **_options: Any) -> None:
        """Connect, or fail as Ray does."""
        if self.unreachable:
            raise ConnectionError(self.unreachable)

    def nodes(self) -> list[dict[str, Any]]:
        """List the machines, or fail as Ray does where the cluster is lost."""
        self.gone_after -= 1
        if self.gone_after < 0:
            raise _RayError("The head died.\nTrace")
        return [
            {
                "NodeID": name,
                "Alive": True,
                "NodeManagerHostname": name,
                "NodeManagerAddress": address,
                "Resources": {"CPU": 2.0},
            }
            for name, address in zip(self.machines, self.addresses, strict=False)
        ]

    def remote(self, function: Callable[..., Any]) -> Any:
        """Return what calls a function on a machine."""

        def options(**settings: Any) -> Any:
            def call(*arguments: Any) -> Any:
                self.calls.append(settings)
                if len(self.calls) <= self.lost:
                    return _RayError("The machine died.\nLong story")
                return function(*arguments)

            return SimpleNamespace(remote=lambda *arguments: _Reference(call(*arguments)))

        return SimpleNamespace(options=options)

    def wait(self, references: list[Any], *, timeout: float) -> tuple[list[Any], list[Any]]:
        """Say that every call has ended."""
        del timeout
        return references, []

    def get(self, reference: Any) -> Any:
        """Return what a call has returned, or fail as it did."""
        if isinstance(reference.value, Exception):
            raise reference.value
        return reference.value

    def cancel(self, _reference: Any) -> None:
        """End a call that has ended."""

    def shutdown(self) -> None:
        """Disconnect."""
        self.ended = True


@dataclass(eq=False)
class _Reference:
    value: Any


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> PlayedRay:
    played = PlayedRay()
    strategies = ModuleType("ray.util.scheduling_strategies")
    strategies.NodeAffinitySchedulingStrategy = lambda node, *, soft: (node, soft)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", played)
    monkeypatch.setitem(sys.modules, "ray.util.scheduling_strategies", strategies)
    return played


def work(address: str = "auto") -> tuple[list[TaskDone], list[str]]:
    done: list[TaskDone] = []
    lines: list[str] = []
    run_on_ray(address, ONCE, done=done.append, tell=lines.append)
    return done, lines


@pytest.mark.usefixtures("measured")
def test_each_call_of_a_machine_does_one_task(registry: Registry, model: Path, ray: PlayedRay) -> None:
    """It has all processors of its machine, and Ray neither moves nor repeats it."""
    register(Registration(model=str(model), convert=False), registry)

    done, _ = work()

    assert [one.outcome.state for one in done] == [TaskState.DONE] * 3
    assert {figure.state for figure in current_figures(registry, "net")} == {FigureState.FRESH}
    assert all(one.outcome.result is None for one in done)  # the store has it
    for call in ray.calls:
        assert (call["num_cpus"], call["max_retries"]) == (2.0, 0)
        assert call["scheduling_strategy"] == ("one", False)
    assert ray.ended
    assert not registry.workers()


@pytest.mark.usefixtures("measured")
def test_a_machine_that_is_lost_is_named_and_the_others_go_on(
    registry: Registry, model: Path, ray: PlayedRay
) -> None:
    """Its task is queued again when the lease runs out."""
    register(Registration(model=str(model), convert=False), registry)
    ray.machines, ray.addresses, ray.lost = ("one", "two"), ("127.0.0.1", "127.0.0.1"), 1

    done, lines = work()

    assert len(done) == 3
    assert lines == ["one: The machine died; if it had a task, its lease runs out within a minute."]
    assert not registry.workers()


@pytest.mark.usefixtures("registry")
def test_a_cluster_that_is_lost_ends_the_worker_with_a_sentence(ray: PlayedRay) -> None:
    """What was leased comes back by itself."""
    ray.gone_after = 1

    with pytest.raises(RunFailed, match="at auto is lost: The head died; what was leased is queued again"):
        work()


def test_a_machine_that_reads_another_store_does_nothing(registry: Registry, model: Path) -> None:
    """It says which one it reads."""
    register(Registration(model=str(model), convert=False), registry)

    report = do_next(ONCE, "elsewhere")

    assert report.refused.endswith(", not elsewhere")
    assert not report.done
    assert len(registry.tasks(states=(TaskState.QUEUED,))) == 3


@pytest.mark.usefixtures("registry")
def test_a_machine_that_cannot_work_is_left_out(ray: PlayedRay, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the reason, and it is not called again."""

    def fail(*_: Any, **__: Any) -> None:
        raise RequestError("It has no such device.")

    monkeypatch.setattr(ray_cluster, "run_worker", fail)

    assert work() == ([], ["one is left out: It has no such device."])
    assert len(ray.calls) == 1


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(
    ("address", "addresses", "unreachable", "says"),
    [
        ("ray://head:10001", (), "", "Whoever reaches the Ray cluster at head may run code on it"),
        ("10.0.0.7:6379", (), "", "at 10.0.0.7 may run code"),
        ("auto", ("10.0.0.7", "10.0.0.8"), "", "at 10.0.0.8 may run code"),
        ("127.0.0.1:6379", (), "No answer.\nTrace", "cannot be used: No answer; check the address"),
    ],
)
def test_a_cluster_that_cannot_be_used_is_refused_in_a_sentence(
    address: str, addresses: tuple[str, ...], unreachable: str, says: str, ray: PlayedRay
) -> None:
    """Without tokens, only machines of this host."""
    ray.machines, ray.addresses, ray.unreachable = ("one", "two"), addresses, unreachable

    with pytest.raises(RequestError, match=says):
        work(address)


@pytest.mark.usefixtures("registry", "ray")
def test_with_tokens_other_machines_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray checks them."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")

    assert work("head:6379") == ([], [])


def test_without_ray_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing was started."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match="pip install ray"):
        run_on_ray("auto", ONCE)


def test_a_name_is_of_one_machine() -> None:
    """Machines of a cluster have the names of their hosts."""
    with pytest.raises(RequestError, match="named by their hosts"):
        run_on_ray("auto", replace(ONCE, target_name="mine"))


def test_the_store_that_is_compared_is_the_place_of_the_workers_store(registry: Registry) -> None:
    """So a password in its address is not sent."""
    del registry
    with plugins.store() as store:
        assert not do_next(ONCE, store.place).refused


@pytest.mark.usefixtures("measured", "ray")
def test_ports_that_others_reach_are_told_of(
    registry: Registry, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not those of the loopback, nor of other programs; and not where the cluster asks for tokens."""
    register(Registration(model=str(model), convert=False), registry)
    names = {1: "gcs_server", 2: "raylet", 3: "postgres", 4: "raylet", 5: "gcs_server"}
    addresses = {1: "::", 2: "127.0.0.1", 3: "0.0.0.0", 4: "::1", 5: "192.0.2.7"}
    listening = [
        SimpleNamespace(status="LISTEN", pid=pid, laddr=SimpleNamespace(ip=ip, port=1000 + pid))
        for pid, ip in addresses.items()
    ]
    monkeypatch.setattr("psutil.net_connections", lambda _kind: listening)
    monkeypatch.setattr("psutil.Process", lambda pid: SimpleNamespace(name=lambda: names[pid]))

    _, (line,) = work()
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    _, lines = work()

    assert line.startswith(
        "Ray listens to other machines, too (gcs_server at port 1001, gcs_server at port 1005), whatever"
    )
    assert lines == []


@pytest.mark.usefixtures("measured", "ray")
def test_behind_a_thousand_tasks_for_other_hardware_those_for_this_are_seen(
    registry: Registry, model: Path
) -> None:
    """The queue of another machine is as long as it is, and comes first."""
    register(Registration(model=str(model), convert=False), registry)
    others = [
        replace(task, key=f"{task.key} {copy}", target="f" * 12, priority=1, id=0)
        for task in registry.tasks()
        for copy in range(500)
    ]
    assert registry.enqueue(others) == 1500

    done, _ = work()

    assert [each.outcome.state for each in done] == [TaskState.DONE] * 3
    assert registry.targets_waited_for(0.0) == {"f" * 12}


@pytest.mark.usefixtures("measured")
def test_a_machine_whose_store_is_away_for_a_moment_is_called_again(
    registry: Registry, model: Path, ray: PlayedRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not left out, as one that reads another store is."""
    del ray, registry, model

    def away() -> None:
        raise StoreUnavailable("The store is away.")

    monkeypatch.setattr(plugins, "store", away)
    report = do_next(ONCE, "here")

    assert (report.refused, report.messages) == ("", ("The store is away.",))
