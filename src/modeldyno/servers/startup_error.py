"""Finds the cause of a server's failure in its log, as one line or a few.

A log has much that is not the cause, and repeats the cause in several lines, the last of which often says
least (``failed to load all models``). So patterns are tried in the order of how specific they are.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_LINE_LIMIT = 400
"""Characters of a line that are quoted."""
_EXCERPT_LINES = 8
"""Lines of an excerpt."""
_MARKS = (
    re.compile(
        r"error parsing|unrecognized option|invalid argument for|invalid configuration:|address (is )?already"
        r" in use|error occurred during initialization",
        re.IGNORECASE,
    ),
    re.compile(r"failed to load '|poll failed for", re.IGNORECASE),
    re.compile(r"\b\w*(Error|Exception|InvalidGraph|NotImplemented|InvalidArgument|Fail): |^fatal", re.ASCII),
    re.compile(r"\b\w*(Error|Exception)\b|^error|load failed for model", re.IGNORECASE | re.ASCII),
    re.compile(r"error|exception|fail|cannot|refus|invalid|not found|denied|killed", re.IGNORECASE),
)
"""Patterns of a line with the cause, the most specific first."""
_NOISE = re.compile(r"CudaDriverHelper|NVML|DCGM|nvidia-smi|error message: \"\"|Exception Group Traceback")
"""Messages about a missing GPU, and others that are not the cause."""
_LOG_PREFIX = re.compile(
    r"\x1b\[[0-9;]*m"
    r"|^(\d{4}-\d\d-\d\d[ T])?\S*\d{2}:\d{2}:\d{2}\S*\s+"  # the time
    r"|^[EWIF]\d{4} \S+ \d+ \S+\] "  # the head of a line of glog
    r"|^\[[A-Z ]+\] \S+ \S+ - "  # the head of a line of log4j, with thread and logger
    r"|^\[libprotobuf \w+ \S+\] "
    r"|^error: creating server: "
    r"|^Exception in thread \"\S+\" "
    r"|^/\S+/(?=[^/\s]+: )"  # the directory of a program that names itself
)
_TREE = re.compile(r"^\s*[|+][\s|+-]*")
"""Tree lines of printed exception groups."""
_MODULE = re.compile(r"(?:^|(?<=: ))(?:[a-z_]\w*\.)+(?=[A-Z]\w*(?:: |$))")
"""Module path of an exception's class."""
_ESCAPES = {'"': '"', "\\": "\\", "t": " "}
_CONTINUED = {
    re.compile(r"\bvalidation errors? for \S+$"): 2,
    re.compile(r"during initialization of VM$"): 1,
}
"""Lines whose details are in the lines below, and how many of those."""


def find_cause(log: str) -> str:
    """Return the likeliest cause of a failure; empty if no line looks like one."""
    lines = list(_lines(log))
    index = next((line for mark in _MARKS for line in _matching(lines, mark)), None)
    if index is None:
        return ""
    more = next((count for mark, count in _CONTINUED.items() if mark.search(lines[index][0])), 0)
    return _short(": ".join(line for line, _ in lines[index : index + more + 1]).rstrip(" .;,"))


def error_excerpt(log: str) -> str:
    """Return the last distinct lines about a failure."""
    lines = list(_lines(log))
    failures = dict.fromkeys(_short(lines[index][0]) for index in _matching(lines, _MARKS[-1]))
    return "\n".join(reversed(list(failures)[:_EXCERPT_LINES]))


def _matching(lines: list[tuple[str, bool]], mark: re.Pattern[str]) -> Iterator[int]:
    """Yield the indices of matching lines, last first; not of indented lines (details, help texts)."""
    for index in range(len(lines) - 1, -1, -1):
        line, indented = lines[index]
        if not indented and mark.search(line) and not _NOISE.search(line):
            yield index


def _lines(log: str) -> Iterator[tuple[str, bool]]:
    """Yield the lines without their log prefix, and whether each is indented."""
    for raw in log.splitlines():
        bare = raw
        while (stripped := _LOG_PREFIX.sub("", bare, count=1)) != bare:
            bare = stripped
        tree = _TREE.match(bare)
        line = bare[tree.end() :] if tree else bare
        indented = line[:1].isspace()
        if line := _MODULE.sub("", _unquote(line.strip())).strip("|+- "):
            yield line, indented


def _unquote(line: str) -> str:
    """Return the first line of a quoted text."""
    if len(line) < 2 or not line[0] == line[-1] == '"':  # noqa: PLR2004 - a pair of them
        return line
    first = line[1:-1].partition(r"\n")[0]
    return re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[0]), first)


def _short(line: str) -> str:
    return line if len(line) <= _LINE_LIMIT else f"{line[: _LINE_LIMIT - 1]}…"
