"""A server whose timing is known exactly, to compare with what a load generator measures.

``python -m modeldyno.testing.server --service exponential:0.002 --workers 4`` prints its port and serves
until a signal ends it (Ctrl-C, ``kill``), or ``--seconds 60`` are over: plain HTTP, KServe v2, TorchServe,
TensorFlow Serving, OpenAI's completions, chats and responses and Anthropic's messages, all from one queue,
and below ``/dialect/NAME`` streams of text as other servers write them (`server_dialects`). A prompt has as
many tokens as words, or as the tokenizer counts, and 256 for each image. Faults are requested by a path
(``/fault/truncated/v2/...``), a header (``X-Fault: 503``) or as a share of all (``--fault hang=0.01``).
With ``--sessions`` each answer of a chat is another text, and ``GET /sessions`` returns how many chats went
on with a history that has all of these in order, and how long their users thought (`server_sessions`).
``GET /truth`` returns what happened to each request, in the order in which they ended; ``DELETE /truth``
clears that, and restarts the clock of stalls. ``--grpc 0`` adds TensorFlow Serving's gRPC on a port of its
own, which is printed as well.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import http.client
import json
import os
import random
import ssl
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from modeldyno.base.errors import ModelDynoError, RunFailed, UnknownName
from modeldyno.base.stats.statistics import load_numpy
from modeldyno.base.system.process_tree import end_with_parent
from modeldyno.serving.load.request_log import Column
from modeldyno.serving.servers.generation_metrics import SERVERS
from modeldyno.testing import server_tensorflow_grpc
from modeldyno.testing.server_faults import FAULTS, NUMBERS
from modeldyno.testing.server_http import NOTHING, ServerConnection, ServerState
from modeldyno.testing.server_protocols import Site
from modeldyno.testing.server_queue import COLUMNS, Alarm, Workers
from modeldyno.testing.server_sessions import SeenSessions
from modeldyno.testing.server_text import Generation, count_by_tokenizer, count_words
from modeldyno.testing.service_model import Service, Stall, parse_durations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


_HOST = "127.0.0.1"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Truth:
    """What the server did with each request, in order of their ends; int64, times in nanoseconds."""

    id: Column
    """Id from the header ``X-Id``; -1 without one."""
    arrival: Column
    start: Column
    """When its call began."""
    first: Column
    """When the first piece of its answer was written."""
    end: Column
    batch: Column
    """Number of requests in its call."""
    fault: Column
    """Number of the fault in FAULTS; -1 for none."""

    def __len__(self) -> int:
        return int(self.end.size)

    @property
    def fine(self) -> Column:
        """Whether each was answered without a fault."""
        fine: Column = self.fault == NOTHING
        return fine

    def faults(self) -> dict[str, int]:
        """Return how often each fault occurred."""
        counts = {name: int((self.fault == number).sum()) for name, number in NUMBERS.items()}
        return {name: count for name, count in counts.items() if count}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """A server in a separate process."""

    port: int
    pid: int
    grpc_port: int | None = None
    """Where it speaks gRPC, if it was started with ``--grpc``."""
    host: str = _HOST

    def get(self, path: str, method: str = "GET") -> bytes:
        """Send a request; raises OSError when it fails."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise OSError(f"{method} {path}: {answer.status}")
        return body

    def truth(self) -> Truth:
        """Return what it did since it was started or cleared."""
        np = load_numpy()
        rows = np.frombuffer(self.get("/truth?binary"), dtype="<i8").reshape(-1, len(COLUMNS))
        return Truth(**{name: rows[:, at] for at, name in enumerate(COLUMNS)})

    def forget(self) -> None:
        """Clear its record, and let stalls count from the next request."""
        self.get("/truth", "DELETE")

    def sessions(self) -> dict[str, Any]:
        """Return what it saw of chats of several turns, if it was started with ``--sessions``."""
        seen: dict[str, Any] = json.loads(self.get("/sessions"))
        return seen

    def counters(self) -> dict[str, Any]:
        """Return its counters in Triton's format."""
        counters: dict[str, Any] = json.loads(self.get("/v2/models/echo/stats"))["model_stats"][0]
        return counters


@contextmanager
def serve_in_subprocess(*arguments: str) -> Iterator[RunningServer]:
    """Run a server with command-line arguments; it ends with the block, or with this process."""
    command = [sys.executable, "-m", "modeldyno.testing.server", "--parent", str(os.getpid()), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            ports = process.stdout.readline().split()
            if not ports:
                raise RunFailed("The ground-truth server did not start; its error is printed above.")
            grpc_port = int(ports[1]) if ports[1:] else None
            yield RunningServer(port=int(ports[0]), pid=process.pid, grpc_port=grpc_port)
        finally:
            process.kill()


# -- the command line ---------------------------------------------------------------------------------


def _parser_type(read: Callable[[str], _T]) -> Callable[[str], _T]:
    """Report a wrong argument in a sentence."""

    def convert(text: str) -> _T:
        try:
            return read(text)
        except (ModelDynoError, OSError, ValueError) as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def _parse_stall(text: str) -> Stall:
    at, _, seconds = text.partition(":")
    if not seconds:
        raise ValueError(f"'{text}' is not a stall; write AT:SECONDS, such as 2:0.5")
    return Stall(at=float(at), seconds=float(seconds))


def _parse_share(text: str) -> tuple[str, float]:
    name, _, share = text.partition("=")
    if name not in FAULTS:
        raise UnknownName.among("fault", name, FAULTS)
    if not share:
        raise ValueError(f"'{text}' has no share; write {name}=0.1")
    return name, float(share)


def _argument_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m modeldyno.testing.server", description=__doc__)
    add = parser.add_argument
    add("--host", default=_HOST)
    add("--port", type=int, default=0, help="0: a free one (default)")
    add("--grpc", type=int, metavar="PORT",
        help="TensorFlow Serving's gRPC on this port, too (0: a free one); needs grpcio")  # fmt: skip
    durations = _parser_type(parse_durations)
    add(
        "--service",
        type=durations,
        default="constant:0",
        help="distribution:numbers, in seconds; recorded:FILE",
    )
    add("--workers", type=int, default=1)
    add("--limit", type=int, help="most requests that may wait; others are refused")
    add("--full", type=int, default=503, choices=(429, 503), help="status of refused requests")
    add("--batch", type=int, default=1, help="most requests in a call")
    add("--delay", type=float, default=0.0, help="seconds that a request waits for others to form a batch")
    add("--each", type=float, default=0.0, help="seconds that each further request adds to a call")
    add("--stall", type=_parser_type(_parse_stall), action="append", default=[], metavar="AT:SECONDS",
        help="stop working at AT for SECONDS; repeatable")  # fmt: skip
    add("--fault", type=_parser_type(_parse_share), action="append", default=[], metavar="NAME=SHARE",
        help=f"share of all requests; repeatable: {', '.join(FAULTS)}")  # fmt: skip
    add("--slow", type=float, default=0.05, help="seconds between the bytes of a slow answer")
    add("--idle", type=float, help="seconds after which an idle connection is closed")
    add("--payload", type=int, default=2, help="bytes of the plain answer")
    add("--model", default="echo")
    add("--tokens", type=int, default=16, help="tokens of a generated text, if the request sets no number")
    add("--pace", type=float, default=0.001, help="seconds from one token to the next")
    add("--tokenizer", default="", help="tokenizer.json that counts the tokens of prompts, instead of words")
    add(
        "--prefix-cache",
        action="store_true",
        help="cache prompts in blocks of 16 words, and say how much was cached",
    )
    add(
        "--sessions", action="store_true", help="check that chats go on with their own answers: GET /sessions"
    )
    add("--metrics", choices=SERVERS, default="",
        help="write metrics at /metrics as this server does; what was cached is then only there")  # fmt: skip
    add("--template", type=int, default=0, metavar="N", help="tokens that a chat template adds to a prompt")
    add("--no-usage", action="store_true", help="do not say how many tokens a completion or a chat has")
    add("--together", type=int, default=1, help="tokens in a chunk of a stream")
    add("--certificate", help="file; makes it HTTPS")
    add("--key", help="file")
    add("--seed", type=int, default=0)
    add("--seconds", type=float, help="how long to serve; without it, until a signal")
    add("--parent", type=int, help="process that starts this one, and with which it ends")
    return parser


def _service(options: argparse.Namespace) -> Service:
    return Service(
        durations=options.service,
        workers=options.workers,
        limit=options.limit,
        batch=options.batch,
        delay=options.delay,
        each=options.each,
        stalls=tuple(sorted(options.stall, key=lambda stall: stall.at)),
    )


async def _serve(options: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    server = ServerState(
        site=Site(
            model=options.model,
            payload=(b"ok" * options.payload)[: options.payload],
            generation=Generation(
                tokens=options.tokens,
                pace=options.pace,
                together=options.together,
                prefixes=set() if options.prefix_cache else None,
                sessions=SeenSessions() if options.sessions else None,
                cached_in_usage=not options.metrics,
                usage=not options.no_usage,
                template=options.template,
                count_tokens=count_by_tokenizer(options.tokenizer) if options.tokenizer else count_words,
            ),
        ),
        workers=Workers(service=_service(options), alarm=Alarm(loop), seed=options.seed),
        full=options.full,
        faults=dict(options.fault),
        slow=options.slow,
        idle=options.idle,
        metrics=options.metrics,
        chance=random.Random(options.seed),
    )
    secure = None
    if options.certificate:
        secure = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        secure.load_cert_chain(options.certificate, options.key)
    listening = await loop.create_server(
        lambda: ServerConnection(server), options.host, options.port, backlog=4096, ssl=secure
    )
    if options.seconds is not None:
        loop.call_later(options.seconds, os._exit, 0)
    gc.freeze()
    gc.disable()  # no pauses of our own in the measured times
    ports = [listening.sockets[0].getsockname()[1]]
    if options.grpc is not None:
        _kept_alive, port = await server_tensorflow_grpc.serve_grpc(server, options.host, options.grpc)
        ports.append(port)
    sys.stdout.write(" ".join(map(str, ports)) + "\n")
    sys.stdout.flush()
    await listening.serve_forever()


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until a signal ends this process, or the time is over."""
    options = _argument_parser().parse_args(arguments)
    if options.parent is not None:
        end_with_parent()
        if os.getppid() != options.parent:  # it has ended already
            return
    import uvloop  # only the server's process needs it

    with suppress(KeyboardInterrupt):
        uvloop.run(_serve(options))


if __name__ == "__main__":
    main()
