"""What the log of a server tells of the cause of its end: the text of a log -> one line, or a few.

A log says much of what is no cause, and of one cause several times, the last of them often the emptiest
(``failed to load all models``). So marks of a cause are looked for in the order of how much they tell.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST = 400
"""Characters of a line that are repeated."""
_MOST = 8
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
"""Marks of a line that tells the cause, the surest first."""
_NOISE = re.compile(r"CudaDriverHelper|NVML|DCGM|nvidia-smi|error message: \"\"|Exception Group Traceback")
"""What engines say where there is no GPU, and other words that are no cause."""
_ENVELOPE = re.compile(
    r"\x1b\[[0-9;]*m"
    r"|^(\d{4}-\d\d-\d\d[ T])?\S*\d{2}:\d{2}:\d{2}\S*\s+"  # the time
    r"|^[EWIF]\d{4} \S+ \d+ \S+\] "  # the head of a line of glog
    r"|^\[[A-Z ]+\] \S+ \S+ - "  # that of log4j, with thread and logger
    r"|^\[libprotobuf \w+ \S+\] "
    r"|^error: creating server: "
    r"|^Exception in thread \"\S+\" "
    r"|^/\S+/(?=[^/\s]+: )"  # the directory of a program that names itself
)
_TREE = re.compile(r"^\s*[|+][\s|+-]*")
"""What groups of exceptions are drawn with."""
_MODULE = re.compile(r"(?:^|(?<=: ))(?:[a-z_]\w*\.)+(?=[A-Z]\w*(?:: |$))")
"""Where the class of an exception is from."""
_ESCAPES = {'"': '"', "\\": "\\", "t": " "}
_UNFINISHED = {
    re.compile(r"\bvalidation errors? for \S+$"): 2,
    re.compile(r"during initialization of VM$"): 1,
}
"""Lines that leave what they speak of to the ones below, and how many of those."""


def cause(log: str) -> str:
    """Give what is likeliest the cause of a failure; empty where nothing speaks of one."""
    lines = list(_lines(log))
    at = next((at for mark in _MARKS for at in _with(lines, mark)), None)
    if at is None:
        return ""
    more = next((count for mark, count in _UNFINISHED.items() if mark.search(lines[at][0])), 0)
    return _short(": ".join(line for line, _ in lines[at : at + more + 1]).rstrip(" .;,"))


def excerpt(log: str) -> str:
    """Give the last lines that speak of a failure, each once."""
    lines = list(_lines(log))
    found = dict.fromkeys(_short(lines[at][0]) for at in _with(lines, _MARKS[-1]))
    return "\n".join(reversed(list(found)[:_MOST]))


def _with(lines: list[tuple[str, bool]], mark: re.Pattern[str]) -> Iterator[int]:
    """Find the lines with a mark, the last first; not those that are part of another, or of a help."""
    for at in range(len(lines) - 1, -1, -1):
        line, indented = lines[at]
        if not indented and mark.search(line) and not _NOISE.search(line):
            yield at


def _lines(log: str) -> Iterator[tuple[str, bool]]:
    """Give the bare lines, and whether each is indented."""
    for raw in log.splitlines():
        bare = raw
        while (less := _ENVELOPE.sub("", bare, count=1)) != bare:
            bare = less
        tree = _TREE.match(bare)
        line = bare[tree.end() :] if tree else bare
        indented = line[:1].isspace()
        if line := _MODULE.sub("", _unquoted(line.strip())).strip("|+- "):
            yield line, indented


def _unquoted(line: str) -> str:
    """Give the first line of a text that stands within quotation marks."""
    if len(line) < 2 or not line[0] == line[-1] == '"':  # noqa: PLR2004 - a pair of them
        return line
    first = line[1:-1].partition(r"\n")[0]
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), first)


def _short(line: str) -> str:
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
