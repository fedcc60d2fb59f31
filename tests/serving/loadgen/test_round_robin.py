"""Requests go to each of several servers in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.serving.loadgen.request import Call, OpenSequence
from modeldyno.serving.loadgen.round_robin import RoundRobin

if TYPE_CHECKING:
    from modeldyno.serving.loadgen.request import Carrier


class Server:
    """Notes what it was sent."""

    def __init__(self, opened: int) -> None:
        self.opened = opened
        self.seen: list[object] = []

    def send(self, call: Call, now: int) -> None:
        """Note a request."""
        del now
        self.seen.append(call)

    def drop(self, call: Call) -> None:
        """Forget it."""
        self.seen.remove(call)

    def leave(self, sequence: OpenSequence) -> None:
        """Note a sequence that has ended."""
        self.seen.append(sequence)


def three_servers() -> tuple[list[Server], list[Carrier]]:
    servers = [Server(opened=number) for number in range(3)]
    return servers, [*servers]


def test_each_server_has_as_many_requests_as_the_others() -> None:
    """Beginning with another server than the next driver; a request that is dropped is dropped at its own."""
    servers, carriers = three_servers()
    balancer = RoundRobin(carriers, first=5)
    calls = [Call(0, 0) for _ in range(9)]
    for call in calls:
        balancer.send(call, 0)
    assert [call.server for call in calls] == [2, 0, 1] * 3
    assert [len(server.seen) for server in servers] == [3, 3, 3]
    balancer.drop(calls[0])
    assert [len(server.seen) for server in servers] == [3, 3, 2]
    assert balancer.opened == 3


def test_all_requests_of_a_sequence_go_to_the_same_server() -> None:
    """Which has its history in its cache; sequences take turns."""
    servers, carriers = three_servers()
    balancer = RoundRobin(carriers)
    sequences = [OpenSequence(number, iter([0] * 9), 5) for number in range(4)]
    for _ in range(5):
        for sequence in sequences:
            call = Call(0, 0)
            call.sequence = sequence
            balancer.send(call, 0)
    assert [sequence.server for sequence in sequences] == [0, 1, 2, 0]
    assert [len(server.seen) for server in servers] == [10, 5, 5]
    balancer.leave(sequences[1])
    assert servers[1].seen[-1] is sequences[1]
