"""What driving a load costs, beside the clients that others use, on servers that do next to nothing.

Three parts, each alternating with its peers in one run:

1. HTTP/1.1: requests a second and processor time a request, beside wrk where it is installed (Debian:
   ``apt install wrk``).
2. gRPC: the same, beside grpc.aio with messages that are serialised already (``pip install grpcio``), on a
   server of ours that answers without looking.
3. An open loop, Poisson at 2,000/s: how late requests are sent.

    python bench/load.py [--rounds 3] [--seconds 3] [--part http grpc lag] [--concurrency 1 4 16 64]

The server keeps to one core; the clients run where the system puts them. wrk keeps no record of a request, we
keep all.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.system.process_tree import end_with_parent
from modeldyno.engine.interfaces.request_target import Target, Transport
from modeldyno.serving.load.request_log import join_records
from modeldyno.serving.loadgen import http2_frames as frames
from modeldyno.serving.loadgen.driver_pool import run_load_drivers
from modeldyno.serving.loadgen.hpack import encode_literal
from modeldyno.serving.loadgen.http2_frames import frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.serving.load.request_log import Records
    from modeldyno.serving.loadgen.running_load import DriverUsage

Cost = tuple[float, float]
"""Requests a second; seconds of processor time a request."""

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n" + b'{"a": [1, 2]}'
METHOD = "/bench.Echo/Echo"
MESSAGE = b"x" * 100
LAG_BOUND = 1e-3
"""Seconds of the 99th percentile of the send lag, on a quiet machine."""
CORES = os.sched_getaffinity(0)


class Answers(asyncio.Protocol):
    """A server that answers whatever comes."""

    def connection_made(self, transport: Any) -> None:
        """Keep the transport."""
        self.transport = transport

    def data_received(self, _: bytes) -> None:
        """Answer."""
        self.transport.write(ANSWER)


class Calls(asyncio.Protocol):
    """As much of gRPC as an echo of nothing needs: each call that is whole gets the same answer."""

    def connection_made(self, transport: Any) -> None:
        """Say hello, and take any number of bytes."""
        self.transport = transport
        self.rest = b""
        transport.write(
            frame(frames.SETTINGS, 0, 0) + frame(frames.WINDOW_UPDATE, 0, 0, (1 << 30).to_bytes(4))
        )

    def data_received(self, data: bytes) -> None:
        """Answer all calls that are whole."""
        data = self.rest + data
        at = len(frames.CLIENT_PREFACE) if data.startswith(frames.CLIENT_PREFACE) else 0
        answers = []
        while len(data) - at >= frames.HEAD_SIZE:
            high, low, kind, flags, number = frames.read_head(data, at)
            end = at + frames.HEAD_SIZE + (high << 16 | low)
            if end > len(data):
                break
            if kind == frames.DATA and flags & frames.END_STREAM:
                stream = number.to_bytes(4)
                answers.append(stream.join(REPLY))
            elif kind in {frames.SETTINGS, frames.PING} and not flags & frames.ACK:
                echo = data[at + frames.HEAD_SIZE : end] if kind == frames.PING else b""
                answers.append(frame(kind, frames.ACK, 0, echo))
            at = end
        self.rest = data[at:]
        if answers:
            self.transport.write(b"".join(answers))


def _reply() -> list[bytes]:
    """Give an answer of gRPC, cut where the numbers of its stream belong."""
    head = encode_literal([(b":status", b"200"), (b"content-type", b"application/grpc")], learn=False)
    parts = [
        frame(frames.HEADERS, frames.END_HEADERS, 0, head),
        frame(frames.DATA, 0, 0, b"\0" + len(MESSAGE).to_bytes(4) + MESSAGE),
        frame(
            frames.HEADERS, frames.END_OF_REQUEST, 0, encode_literal([(b"grpc-status", b"0")], learn=False)
        ),
    ]
    messages = [b""]
    for part in parts:
        messages[-1] += part[: frames.STREAM_AT]
        messages.append(part[frames.HEAD_SIZE :])
    return messages


REPLY = _reply()


async def serve(kind: type[asyncio.Protocol]) -> None:
    """Serve on a free port, and print it."""
    server = await asyncio.get_running_loop().create_server(kind, "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def call_by_aio(port: int, concurrency: int, seconds: float) -> None:
    """Be the peer: call in a closed loop with grpc.aio, and print calls a second and time a call."""
    import grpc  # of this part only

    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(METHOD)
        await call(MESSAGE)
        count = 0
        began, spent = time.monotonic(), time.process_time()

        async def slot() -> None:
            nonlocal count
            while time.monotonic() - began < seconds:
                await call(MESSAGE)
                count += 1

        await asyncio.gather(*(slot() for _ in range(concurrency)))
        elapsed, used = time.monotonic() - began, time.process_time() - spent
    print(count / elapsed, used / count)


@contextmanager
def run_server(kind: str) -> Iterator[int]:
    """Run a server in a process and on a core of its own."""
    command = [sys.executable, __file__, "--be", kind, "--core", str(max(CORES))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


def target(transport: Transport, port: int) -> Target:
    """Give the trivial server as we see it."""
    head = f"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(MESSAGE)}\r\n\r\n".encode()
    return Target(
        protocol="bench",
        transport=transport,
        host="127.0.0.1",
        port=port,
        messages=((head if transport is Transport.HTTP else b"") + MESSAGE,),
        method=METHOD,
    )


def drive(aim: Target, load: Load, seconds: float) -> tuple[Records, DriverUsage]:
    """Drive for so long; give the records and what the driver cost."""
    with run_load_drivers(aim, load) as crew:
        parts, end = [], time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            parts.append(crew.take(min(0.25, left)).records)
        ending = crew.stop(1.0)
    return join_records([*parts, ending.records]), ending.usages[0]


def ours(transport: Transport, port: int, concurrency: int, seconds: float) -> Cost:
    """Drive a closed loop."""
    records, usage = drive(target(transport, port), Load(concurrency=concurrency), seconds)
    assert records.fine.mean() > 0.999, "the server failed"
    return len(records) / usage.wall, usage.cpu / len(records)


def other(command: list[str], rate: str) -> Cost:
    """Run another client, and find its rate in what it prints."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    elapsed = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    match = re.search(rate, output)
    assert match is not None, output
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return float(match[1]), used / (float(match[1]) * elapsed)


def wrk(port: int, concurrency: int, seconds: float) -> Cost:
    """Run wrk with one thread."""
    command = ["wrk", "-t1", f"-c{concurrency}", f"-d{round(seconds)}s", f"http://127.0.0.1:{port}/"]
    return other(command, r"Requests/sec:\s*([\d.]+)")


def aio(port: int, concurrency: int, seconds: float) -> Cost:
    """Run grpc.aio in a process of its own."""
    arguments = [
        "--be",
        "aio",
        "--port",
        str(port),
        "--concurrency",
        str(concurrency),
        "--seconds",
        str(seconds),
    ]
    done = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=True)
    rate, cost = map(float, done.stdout.split())
    return rate, cost


def alternate(clients: dict[str, Callable[[int], Cost]], options: argparse.Namespace) -> None:
    """Run all, in an order that alternates, and print medians and ratios to ours."""
    costs_by_client: dict[tuple[int, str], list[Cost]] = defaultdict(list)
    for round_ in range(options.rounds):
        for concurrency in options.concurrency:
            for name in [*clients][:: 1 if round_ % 2 else -1]:
                costs_by_client[concurrency, name].append(clients[name](concurrency))
    print("concurrency    client  requests/s  CPU a request  ours/its    CPU")
    for (concurrency, name), costs in sorted(costs_by_client.items()):
        rate, cost = (statistics.median(column) for column in zip(*costs, strict=True))
        mine = [
            statistics.median(column)
            for column in zip(*costs_by_client[concurrency, "modeldyno"], strict=True)
        ]
        ratios = "" if name == "modeldyno" else f" {mine[0] / rate:9.2f} {mine[1] / cost:6.2f}"
        print(f"{concurrency:11} {name:>9} {rate:11,.0f} {cost * 1e6:11.1f} us{ratios}")


def http(options: argparse.Namespace) -> None:
    """Part 1."""
    print("HTTP/1.1, a trivial server:")
    with run_server("http") as port:
        clients: dict[str, Callable[[int], Cost]] = {
            "modeldyno": lambda many: ours(Transport.HTTP, port, many, options.seconds)
        }
        if shutil.which("wrk"):
            clients["wrk"] = lambda many: wrk(port, many, options.seconds)
        else:
            print("  wrk is not installed")
        alternate(clients, options)


def grpc(options: argparse.Namespace) -> None:
    """Part 2."""
    print("gRPC, a trivial server:")
    with run_server("grpc") as port:
        clients: dict[str, Callable[[int], Cost]] = {
            "modeldyno": lambda many: ours(Transport.GRPC, port, many, options.seconds),
            "grpc.aio": lambda many: aio(port, many, options.seconds),
        }
        alternate(clients, options)


def lag(options: argparse.Namespace) -> None:
    """Part 3."""
    print("Open loop, Poisson at 2,000/s:")
    with run_server("http") as port:
        for _ in range(options.rounds):
            load = Load(arrivals=Arrivals.POISSON, rate=2000.0)
            records, usage = drive(target(Transport.HTTP, port), load, options.seconds)
            late = (records.sent - records.due) / 1e9
            p50, p99, most = np.percentile(late, [50, 99, 100])
            verdict = "holds" if p99 <= LAG_BOUND else "does not hold"
            print(
                f"  {len(records) / usage.wall:7,.0f}/s: sent late by {p50 * 1e6:.0f} us at p50, "
                f"{p99 * 1e6:.0f} us at p99, {most * 1e3:.1f} ms at most; "
                f"{usage.cpu / usage.wall:.0%} of a core; p99 <= 1 ms {verdict}"
            )


PARTS = {"http": http, "grpc": grpc, "lag": lag}


def be(role: str, options: argparse.Namespace) -> None:
    """Be a server or a peer, in a process of its own."""
    end_with_parent()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    if role == "aio":
        asyncio.run(call_by_aio(options.port, options.concurrency[0], options.seconds))
    else:
        import uvloop  # of this role only

        uvloop.run(serve(Answers if role == "http" else Calls))


def main() -> None:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=[*PARTS])
    parser.add_argument("--concurrency", nargs="+", type=int, default=[1, 4, 16, 64])
    parser.add_argument("--be", choices=("http", "grpc", "aio"), help=argparse.SUPPRESS)
    parser.add_argument("--core", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.be:
        be(options.be, options)
        return
    for part in options.part:
        PARTS[part](options)
    print(f"load average now: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
