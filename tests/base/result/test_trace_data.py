"""What a second pass saw, and how closely it was asked to look."""

from __future__ import annotations

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.job.probe_options import ProbeOptions, parse_token_counts
from modeldyno.base.result.trace_data import ExecutedOp, Layer, TraceReport, join_reports


def test_what_several_probes_saw_is_joined() -> None:
    """Each part comes from the probe that saw it; the last one to see it is believed."""
    layers = TraceReport(layers=(Layer(path="", kind="Net"),))
    operators = TraceReport(
        executed=(ExecutedOp(name="mm", calls=1, self_time=1, total_time=1),), held_in="fc"
    )
    again = TraceReport(layers=(Layer(path="", kind="Net", calls=2),))
    joined = join_reports([layers, operators, again])
    assert joined == TraceReport(layers=again.layers, executed=operators.executed, held_in="fc")
    assert join_reports([]) is None


def test_none_found_is_not_the_same_as_not_looked_for() -> None:
    """A probe that looked for needless steps and found none replaces what was unknown, and only that."""
    looked, operators = TraceReport(wastes=()), TraceReport(held_in="fc")

    assert TraceReport().wastes is None
    assert join_reports([operators, looked]) == TraceReport(wastes=(), held_in="fc")
    assert join_reports([looked, operators]) == TraceReport(wastes=(), held_in="fc")


def test_layers_are_named_by_parts_of_their_path_or_class() -> None:
    """A name chooses the modules that have it in their path, or in their class whatever its case."""
    chosen = ProbeOptions(layers=("attention", "mlp"))
    assert chosen.named("encoder.attention.0", "Linear")
    assert chosen.named("h.0", "GPT2MLP")
    assert not chosen.named("encoder.norm", "LayerNorm")
    assert ProbeOptions().named("anything", "Linear")


def test_tokens_are_numbers() -> None:
    """Numbers of tokens are read once each; anything else is refused with the option's name."""
    assert parse_token_counts("32, 128,32", "--prompt") == (32, 128)
    for wrong in ("", "0", "-1", "8x", "1.5", "9999999"):
        with pytest.raises(RequestError, match="--prompt takes numbers of tokens"):
            parse_token_counts(wrong, "--prompt")
