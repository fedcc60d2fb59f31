"""Token generation: time to first token, time per token, their growth with context, and the KV cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.report.blocks import Block, Notice, Table, make_table, note
from modeldyno.base.stats.units import SECONDS, format_quantity
from modeldyno.base.views.text import (
    UNCERTIFIED,
    about,
    count,
    figure,
    format_known,
    format_statistic,
    share,
    shorten_name,
)
from modeldyno.engine.trace.token_metrics import DECODE, GenerationLength, TokenBand, split_into_bands

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.result.result import Result

_PARTS = ("first", "second", "third", "last")


def generation(result: Result) -> Iterator[Block]:
    """Lay out the measurements of token generation, if there are any."""
    extents = _extents(result)
    if not extents:
        return
    if result.find("latency"):  # or the verdict is about generation already
        yield note(f"{generation_clause(result)[:1].upper()}{generation_clause(result)[1:]}")
    yield make_table(
        f"Generated tokens, batch {_batch(result)}: medians",
        ("prompt>", "tokens>", "to first>", "per token>", "p99>", "tokens/s>", "total>", "sequences"),
        (_length(result, extent) for extent in extents),
    )
    yield from _stall_notice(result, extents)
    yield from _places(result, extents)
    yield from _cache(result)
    yield from _achieved(result, extents)


def generation_clause(result: Result) -> str:
    """Return a clause on the generation speed at the first requested length; empty without generation."""
    extents = _extents(result)
    if not extents:
        return ""
    extent = extents[0]
    backend = shorten_name(result.job.backend)
    first = _statistic_text(result, "time_to_first_token", extent)
    gap = _statistic_text(result, "time_per_output_token", extent)
    rate = figure(result, "token_rate", extent.scope)
    follow = f", then one every {gap}".replace("every about", "about every") if gap else ""
    where = f"(median; {_prompt_text(extent)}batch {_batch(result)} on {backend})"
    total = f": {rate.replace('/s', ' tokens/s')} overall" if rate else ""
    return f"generates its first token after {first}{follow} {where}{total}"


def _extents(result: Result) -> list[GenerationLength]:
    scopes = (m.scope for m in result.measurements if m.metric == "time_to_first_token")
    return [extent for scope in scopes if (extent := GenerationLength.of(scope))]


def _prompt_text(extent: GenerationLength) -> str:
    return "" if extent.prompt is None else f"prompt {extent.prompt:,}, "


def _batch(result: Result) -> str:
    return shorten_name(str(result.job.config.get("batch_size", 1)))


def _statistic_text(
    result: Result, metric: str, extent: GenerationLength, statistic: str = "p50", few: str = "about "
) -> str:
    """Format a statistic with the digits its interval justifies; an uncertified one begins with `few`."""
    value = result.distribution(metric, extent.scope)
    if value is None:
        return ""
    text = format_statistic(value, statistic)[0]
    return f"{few}{text}" if value.missing(statistic) else text


def _length(result: Result, extent: GenerationLength) -> tuple[str, ...]:
    first = result.distribution("time_to_first_token", extent.scope)
    assert first is not None
    rates = (figure(result, "token_rate", scope, "—") for scope in (extent.stage(DECODE), extent.scope))
    return (
        "its input" if extent.prompt is None else f"{extent.prompt:,}",
        f"{extent.generated:,}",
        _statistic_text(result, "time_to_first_token", extent, few=UNCERTIFIED),
        _statistic_text(result, "time_per_output_token", extent, few=UNCERTIFIED) or "—",
        _p99_gap(result, extent),
        *(rate.removesuffix("/s") for rate in rates),
        f"{len(first):,}, {first.stop}",
    )


def _p99_gap(result: Result, extent: GenerationLength) -> str:
    """Format the p99 of the inter-token latency; a dash if no token has a time of its own."""
    value = result.distribution("inter_token_latency", extent.scope)
    if value is None:
        return "—"
    return (
        about(value, "p99")
        if value.missing("p99")
        else _statistic_text(result, "inter_token_latency", extent, "p99")
    )


def _stall_notice(result: Result, extents: list[GenerationLength]) -> Iterator[Notice]:
    """Explain a mean time per token that is well above the median of single tokens."""
    for extent in extents:
        means, gaps = (
            result.distribution(metric, extent.scope)
            for metric in ("time_per_output_token", "inter_token_latency")
        )
        if means is None or gaps is None:
            continue
        mean, single = means.statistic("p50"), gaps.statistic("p50")
        if mean > _STALLED * single:
            yield note(
                f"the mean time per token is {format_quantity(mean, 's', 3)}, but most tokens take "
                f"{format_quantity(single, 's', 3)}: a few are delayed by the machine or the model",
                code="stalls",
            )
            return


_STALLED = 1.3
"""Ratio of mean to median from which on it is explained."""


# --- by position in the output -------------------------------------------------------------------


def _places(result: Result, extents: list[GenerationLength]) -> Iterator[Table]:
    """Tabulate how the time per token grows with the context."""
    rows = tuple(_place(result, extent) for extent in extents if extent.generated > len(_PARTS))
    if rows:
        yield make_table(
            "Median time of single tokens by quarters of the output, and the cache at its end",
            ("prompt>", "tokens>", *(f"{part}>" for part in _PARTS), "each adds>", "cache>"),
            rows,
        )


def _place(result: Result, extent: GenerationLength) -> tuple[str, ...]:
    value = result.distribution("inter_token_latency", extent.scope)
    parts: tuple[TokenBand, ...] = () if value is None else split_into_bands(value, extent, len(_PARTS))
    return (
        "its input" if extent.prompt is None else f"{extent.prompt:,}",
        f"{extent.generated:,}",
        *(format_quantity(band.seconds, SECONDS, 3) for band in parts),
        *[""] * (len(_PARTS) - len(parts)),
        format_known(result.number("time_per_context_token", extent.scope), SECONDS, 2),
        figure(result, "kv_cache_bytes", extent.scope, "—"),
    )


def _cache(result: Result) -> Iterator[Notice]:
    measured = figure(result, "kv_cache_per_token", "measured")
    if not measured:
        return
    predicted = figure(result, "kv_cache_per_token")
    prediction = f"; predicted: {predicted}" if predicted else ""
    yield note(
        f"each token of a sample adds {measured} to the cache{prediction}"
        if result.number("kv_cache_per_token", "measured")
        else f"the cache does not grow with the tokens{prediction}",
        code="cache",
    )


def _achieved(result: Result, extents: list[GenerationLength]) -> Iterator[Notice]:
    """Compare the time per token with its estimated lower bound."""
    least = result.number("decode_latency", result.peaks_scope)
    value = result.distribution("time_per_output_token", extents[0].scope)
    if least is None or value is None:
        return
    bound = figure(result, "decode_latency", result.peaks_scope)
    reached = share(least, value.statistic("p50"))
    yield note(
        f"a token takes at least {bound} here, to read weights and cache once; "
        f"{reached} of that memory bandwidth is reached ({_prompt_text(extents[0])}"
        f"{count(extents[0].generated, 'token')})",
        code="bound",
    )
