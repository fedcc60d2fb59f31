"""A server's own cumulative counters, and the difference between two readings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCounters:
    """A server's counters of one model; times are summed over requests, in seconds.

    None means that this server does not report it.
    """

    requests: int
    """Answered well; 0 at all times of a server that does not count them."""
    failures: int = 0
    samples: int | None = None
    executions: int | None = None
    """Calls of the model; several requests may share one."""
    queue: float | None = None
    compute_input: float | None = None
    compute: float | None = None
    compute_output: float | None = None
    prefill: float | None = None
    """Of a language model: the part of `compute` up to the first token."""
    decode: float | None = None
    """The part of it for the tokens after the first."""
    preemptions: float | None = None
    """Requests that had to give up their part of the KV cache, to begin anew later."""
    prompt_tokens: float | None = None
    """Tokens of prompts that were looked up in a cache of earlier ones."""
    cached_tokens: float | None = None
    """Those of them that it had."""
    drafted_tokens: float | None = None
    """Tokens that a draft model, or another way of speculation, proposed."""
    accepted_tokens: float | None = None
    """Those of them that the model accepted."""
    cache_usage: float | None = None
    """Share of the KV cache in use now."""
    running: float | None = None
    """Requests that are worked on now."""
    waiting: float | None = None
    """Requests that wait now."""
    batches: dict[int, int] = field(default_factory=dict)
    """Size of the formed batch to the number of executions."""
    models: dict[str, ServerCounters] = field(default_factory=dict)
    """By name, the models that answer together, if it is an ensemble or calls others."""

    def since(self, before: ServerCounters) -> ServerCounters:
        """Return the increments since an earlier reading."""
        added: dict[str, Any] = {
            name: _difference(getattr(self, name), getattr(before, name)) for name in _COUNTERS
        }
        batches = {size: count - before.batches.get(size, 0) for size, count in self.batches.items()}
        models = {
            name: counters.since(before.models[name])
            for name, counters in self.models.items()
            if name in before.models
        }
        batches = {size: count for size, count in batches.items() if count}
        return replace(self, **added, batches=batches, models=models)

    def joined(self, after: ServerCounters) -> ServerCounters:
        """Return the sum of these increments and the next."""
        added: dict[str, Any] = {name: _sum(getattr(self, name), getattr(after, name)) for name in _COUNTERS}
        sizes = {**self.batches, **after.batches}
        batches = {n: self.batches.get(n, 0) + after.batches.get(n, 0) for n in sizes}
        models = {
            name: counters.joined(after.models[name])
            for name, counters in self.models.items()
            if name in after.models
        }
        return replace(self, **added, batches=batches, models=models)

    def plus(self, other: ServerCounters) -> ServerCounters:
        """Return the sum with the counters of another server at the same time; of caches the fuller one."""
        usages = [usage for usage in (self.cache_usage, other.cache_usage) if usage is not None]
        return replace(
            self.joined(other),
            running=_sum(self.running, other.running),
            waiting=_sum(self.waiting, other.waiting),
            cache_usage=max(usages, default=None),
        )


_COUNTERS = (
    "requests", "failures", "samples", "executions", "queue", "compute_input", "compute", "compute_output",
    "prefill", "decode", "preemptions", "prompt_tokens", "cached_tokens", "drafted_tokens", "accepted_tokens",
)  # fmt: skip


def _difference(now: float | None, before: float | None) -> float | None:
    return None if now is None or before is None else now - before


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterReading:
    """A reading of a server's counters."""

    when: int
    """Nanoseconds of the monotonic clock."""
    counters: ServerCounters


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedWindow:
    """What the server counted between two readings, and what its clients saw in that time."""

    account: ServerCounters
    """Increments of the counters."""
    answers: int
    """Our requests that were answered well in it."""
    service: float
    """Seconds that these took from sent to the last byte, in sum."""

    def joined(self, after: ServedWindow) -> ServedWindow:
        """Return this window and the next as one."""
        return ServedWindow(
            account=self.account.joined(after.account),
            answers=self.answers + after.answers,
            service=self.service + after.service,
        )


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStamps:
    """What a server's trace has of one request, in nanoseconds of the monotonic clock."""

    sent: int
    """When the client sent it: its id."""
    ends: tuple[int, ...]
    """When each stage ended, except for the last, whose end only the client knows."""
