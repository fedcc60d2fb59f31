"""A worker for a Ray cluster: each machine of it does the registry's tasks for its hardware, one at a time.

The database stays the truth. A task of Ray is one leased task of the registry: it says which store and which
options, never what code to run, and Ray does not repeat it; if its machine is lost, its lease runs out and
another one takes it. Whether the device is idle is looked at on the machine itself, as Ray does not see who
else uses it.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from math import inf
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import psutil

from modeldyno.base import plugins
from modeldyno.base.clock import monotonic
from modeldyno.base.errors import MissingExtra, ModelDynoError, RequestError, RunFailed, StoreUnavailable
from modeldyno.engine.runtime.interrupts import counted_interrupts
from modeldyno.registry.outages import OutagePatience, patient_store
from modeldyno.registry.records.records import HardwareTarget, Worker
from modeldyno.registry.targets import CPU, known_target, target_here
from modeldyno.registry.worker import TaskDone, WorkerOptions, new_worker, pause, run_worker
from modeldyno.stores.interface import Store

if TYPE_CHECKING:
    from collections.abc import Sized


_SERVERS = frozenset({"gcs_server", "raylet"})
"""Names of the processes of Ray that run what they are given."""
_REST = 30.0
"""Seconds for which a machine that found nothing to do is left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """What a machine of the cluster did when it was called."""

    worker: Worker
    """Itself, as a worker without a task."""
    target: HardwareTarget
    done: tuple[TaskDone, ...] = ()
    messages: tuple[str, ...] = ()
    """Sentences about the machine."""
    refused: str = ""
    """Why it cannot work."""


def do_next(options: WorkerOptions, store: str) -> NodeReport:
    """Do the next task for this machine, if there is one; this runs on a machine of the cluster.

    Nothing is done if the machine reads another store than the one at the place `store`.
    """
    target = target_here(options.device, options.target_name)
    worker = new_worker(target)
    done: list[TaskDone] = []
    messages: list[str] = []
    refused = ""
    try:
        with plugins.store() as own:
            place, target = own.place, known_target(target, own.registry)
            worker = new_worker(target)
        if place == store:
            run_worker(options, done=lambda one: done.append(_without_documents(one)), tell=messages.append)
        else:
            refused = f"its MODELDYNO_STORE is {place}, not {store}"
    except StoreUnavailable as error:  # it is called again in a while
        messages.append(str(error))
    except ModelDynoError as error:
        refused = str(error)
    return NodeReport(
        worker=worker, target=target, done=tuple(done), messages=tuple(messages), refused=refused
    )


def _without_documents(done: TaskDone) -> TaskDone:
    """Leave out the documents, which the store has."""
    return replace(
        done, outcome=replace(done.outcome, result=None, comparison=None, conversion=None, next=())
    )


def run_on_ray(
    address: str,
    options: WorkerOptions,
    *,
    done: Callable[[TaskDone], None] = lambda _done: None,
    tell: Callable[[str], None] = lambda _sentence: None,
) -> None:
    """Let the machines of a Ray cluster do what is queued, until interrupted, or with `once` until all is.

    A task has all processors that Ray counts on its machine, so that no other task of Ray runs beside it,
    or one GPU. The first Ctrl-C lets measurements finish.

    Args:
        address: of the cluster: ``ray://head:10001``, ``head:6379``, ``auto`` on one of its machines, or
            ``local`` to start a cluster on this machine.
        options: how each machine works.
        done: called with each task that ended, was deferred, or was lost.
        tell: called with what has changed of a machine, and why one cannot work.

    Raises:
        RequestError: the cluster cannot be reached, is on other machines without tokens, or the options are
            of one machine.
        MissingExtra: Ray is not installed.
        RunFailed: the cluster was lost.
        StoreError: the store cannot be read.
    """
    if options.target_name is not None:
        raise RequestError("The machines of a cluster are named by their hosts; leave out the name.")
    _check_tokens(address)
    ray = _import_ray()
    try:
        ray.init(address=address, namespace="modeldyno", log_to_driver=False, logging_level="error")
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise RequestError(
            f"The Ray cluster at {address} cannot be used: {reason}; check the address, and set "
            "RAY_AUTH_MODE=token if it asks for tokens."
        ) from None
    try:
        machines = sorted({node["NodeManagerAddress"] for node in ray.nodes()})
        if len(machines) > 1:
            _require_tokens(machines[-1])
        elif not _has_tokens() and (ports := ports_open_to_others()):
            tell(
                f"Ray listens to other machines, too ({', '.join(ports)}), whatever address it was given: "
                "whoever reaches one of these ports may run code here. Close them by a firewall, or set "
                "RAY_AUTH_MODE=token for the cluster and here."
            )
        with plugins.store() as store, counted_interrupts() as interrupts:
            patience = OutagePatience(
                pause=pause, tell=tell, interrupts=interrupts, most=options.patience if options.once else inf
            )
            patient = patient_store(store, patience)
            cluster = _Cluster(ray=ray, store=patient, options=options, done=done, tell=tell)
            cluster.work(interrupts)
    except ray.exceptions.RayError as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise RunFailed(
            f"The Ray cluster at {address} is lost: {reason}; what was leased is queued again within a "
            "minute."
        ) from None
    finally:
        ray.shutdown()


def _check_tokens(address: str) -> None:
    """Refuse a cluster on other machines that anybody may give code to run.

    Raises:
        RequestError: it does not ask for tokens.
    """
    host = urlsplit(address if "//" in address else f"//{address}").hostname or ""
    with suppress(ValueError):
        host = "localhost" if ip_address(host).is_loopback else host
    if host not in {"auto", "local", "localhost"}:
        _require_tokens(host)


def ports_open_to_others() -> tuple[str, ...]:
    """Return the ports of Ray's servers on this machine that do not listen to the loopback alone."""
    ports = set()
    with suppress(psutil.Error):  # where it is not allowed to look
        for each in psutil.net_connections("tcp"):
            if each.status != psutil.CONN_LISTEN or not each.laddr or ip_address(each.laddr.ip).is_loopback:
                continue
            with suppress(psutil.Error):
                if each.pid and (name := psutil.Process(each.pid).name()) in _SERVERS:
                    ports.add(f"{name} at port {each.laddr.port}")
    return tuple(sorted(ports))


def _has_tokens() -> bool:
    return os.environ.get("RAY_AUTH_MODE") == "token"


def _require_tokens(host: str) -> None:
    if not _has_tokens():
        raise RequestError(
            f"Whoever reaches the Ray cluster at {host} may run code on it; start it with "
            "RAY_AUTH_MODE=token, and set that here, too."
        )


def _import_ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise MissingExtra("A worker for a Ray cluster needs Ray; install it with: pip install ray") from None


@dataclass(slots=True)
class _Node:
    """A machine of the cluster."""

    id: str
    name: str
    processors: float
    report: NodeReport | None = None
    """Its last one."""
    rests_until: float = float("-inf")
    refused: bool = False


@dataclass(slots=True, kw_only=True)
class _Cluster:
    """The machines of a cluster, and what each is doing."""

    ray: Any
    store: Store
    options: WorkerOptions
    done: Callable[[TaskDone], None]
    tell: Callable[[str], None]
    clock: Callable[[], float] = monotonic
    nodes: dict[str, _Node] = field(default_factory=dict)
    working: dict[Any, _Node] = field(default_factory=dict)
    """The machine of each task of Ray that has not ended."""

    def work(self, interrupts: Sized) -> None:
        """Call the machines that have something to do, until interrupted."""
        try:
            while not interrupts:
                for node in self._callable_nodes():
                    self._announce(node, present=False)  # it announces itself
                    self.working[self._call(node)] = node
                if self.options.once and not self.working:
                    return
                for node in self._waiting():
                    self._announce(node, present=True)
                self._collect(self.options.poll)
        finally:
            for node in self.nodes.values():
                self._announce(node, present=False)
        for reference in self.working:
            self.ray.cancel(reference)  # as Ctrl-C there: the measurement finishes, and its task is put off
        while self.working and len(interrupts) < _TWICE:
            self._collect(self.options.poll)

    def _waiting(self) -> list[_Node]:
        """Return the machines that do nothing."""
        working = {node.id for node in self.working.values()}
        return [node for node in self.nodes.values() if node.id not in working]

    def _callable_nodes(self) -> list[_Node]:
        """Return the machines that are free and are new, or have something queued for their hardware."""
        alive = {one["NodeID"]: one for one in self.ray.nodes() if one["Alive"]}
        for identifier, one in alive.items():
            processors = one["Resources"].get("CPU", 0.0)
            self.nodes.setdefault(identifier, _Node(identifier, one["NodeManagerHostname"], processors))
        targets = self.store.registry.targets_waited_for(0.0)
        now = self.clock()
        return [
            node
            for node in self._waiting()
            if node.id in alive
            and not node.refused
            and node.rests_until <= now
            and (node.report is None or targets & {node.report.target.id, ""})
        ]

    def _announce(self, node: _Node, *, present: bool) -> None:
        """Write that a machine waits for tasks, or no longer does."""
        if node.report is None or node.refused:
            return
        registry = self.store.registry
        with suppress(ModelDynoError):
            if present:
                registry.announce(node.report.worker, node.report.target)
            else:
                registry.leave(node.report.worker.id)

    def _call(self, node: _Node) -> Any:
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        on_cpu = self.options.device == CPU
        remote = self.ray.remote(do_next).options(
            name=f"modeldyno on {node.name}",
            num_cpus=node.processors if on_cpu else 1,
            num_gpus=0 if on_cpu else 1,
            max_retries=0,
            scheduling_strategy=strategies.NodeAffinitySchedulingStrategy(node.id, soft=False),
        )
        return remote.remote(replace(self.options, once=True, most=1), self.store.place)

    def _collect(self, seconds: float) -> None:
        """Take the reports that arrive within some seconds."""
        if not self.working:
            time.sleep(seconds)
            return
        ready, _ = self.ray.wait(list(self.working), timeout=seconds)
        for reference in ready:
            node = self.working.pop(reference)
            try:
                self._take_report(node, self.ray.get(reference))
            except self.ray.exceptions.RayError as error:
                reason = str(error).partition("\n")[0].rstrip(".")
                node.rests_until = self.clock() + _REST
                self.tell(f"{node.name}: {reason}; if it had a task, its lease runs out within a minute.")

    def _take_report(self, node: _Node, report: NodeReport) -> None:
        node.report = report if node.report is None else replace(report, worker=node.report.worker)
        for sentence in report.messages:
            self.tell(f"{node.name}: {sentence}")
        for one in report.done:
            self.done(one)
        if report.refused:
            node.refused = True
            self.tell(f"{node.name} is left out: {report.refused.rstrip('.')}.")
        if not report.done:
            node.rests_until = float("inf") if self.options.once else self.clock() + _REST


_TWICE = 2
"""Interruptions after which nothing is waited for."""
