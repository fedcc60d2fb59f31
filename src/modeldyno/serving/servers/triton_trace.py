"""Triton's trace of requests: the flags of a server that can trace, its settings, and the file it writes."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base.clock import monotonic
from modeldyno.engine.interfaces.server_stats import RequestStamps
from modeldyno.serving.servers.admin_client import AdminClient

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_FILE = "requests.json"
_NEVER = 1_000_000_000
"""Traces in a file: it is written, and closed, when the settings change."""
_PATIENCE, _CHECK = 2.0, 0.01
"""Seconds to wait for it, and between two looks."""
_ENDS = (
    ("HTTP_RECV_END", "GRPC_WAITREAD_END"),
    ("QUEUE_START",),
    ("COMPUTE_START",),
    ("COMPUTE_INPUT_END",),
    ("COMPUTE_OUTPUT_START",),
    ("INFER_RESPONSE_COMPLETE",),
    ("HTTP_SEND_START", "GRPC_SEND_START"),
)
"""The stamp at the end of each `RequestStage` but the last, by protocol."""


def trace_flags(folder: Path) -> list[str]:
    """Return the flags of a server that traces nothing yet, and will write its traces into a folder."""
    file = (f"triton,file={folder / _FILE}", f"triton,log-frequency={_NEVER}")
    return [f"--trace-config={setting}" for setting in ("mode=triton", *file, "level=OFF", "rate=1")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonTrace:
    """The trace of the requests to one model; implements `RequestTrace`."""

    control: AdminClient
    model: str
    folder: Path

    def begin(self, step: int) -> None:
        """Trace one of so many requests from now on. Raises OSError on failure."""
        self._set(trace_level=["TIMESTAMPS"], trace_rate=str(step))

    def end(self) -> None:
        """Trace no more; the server then writes what it has traced. Raises OSError on failure."""
        self._set(trace_level=["OFF"])

    def read(self) -> list[RequestStamps]:
        """Return the stamps of the requests that were traced since the last reading, and forget them.

        The server writes them when the last of these requests has ended. Raises OSError if it does not.
        """
        deadline = monotonic() + _PATIENCE
        while monotonic() < deadline:
            paths = sorted(self.folder.glob(f"{_FILE}*"))
            with suppress(ValueError):  # it is being written
                stamps = [stamp for path in paths for stamp in parse_trace(json.loads(path.read_bytes()))]
                if paths:
                    for path in paths:
                        path.unlink()
                    return stamps
            time.sleep(_CHECK)
        raise OSError("the server has not written its trace")

    def _set(self, **settings: Any) -> None:
        self.control.post(f"/v2/models/{self.model}/trace/setting", settings)


def parse_trace(events: Iterable[Mapping[str, Any]]) -> Iterator[RequestStamps]:
    """Yield the stamps of each request that bears an id of ours, unless some are missing, as of a failed one.

    Raises:
        ValueError: the events are not those of a trace.
    """
    ids: dict[int, str] = {}
    stamps: defaultdict[int, dict[str, int]] = defaultdict(dict)
    try:
        for event in events:
            number = event["id"]
            stamps[number].update((entry["name"], entry["ns"]) for entry in event.get("timestamps", ()))
            if "request_id" in event:
                ids[number] = event["request_id"]
    except (KeyError, TypeError, AttributeError):
        raise ValueError("this is no trace of Triton") from None
    for number, text in ids.items():
        ends = tuple(_first_known(stamps[number], names) for names in _ENDS)
        if text.isdigit() and all(ends):
            yield RequestStamps(sent=int(text), ends=ends)


def _first_known(stamps: Mapping[str, int], names: Sequence[str]) -> int:
    return next((stamps[name] for name in names if name in stamps), 0)
