"""What a second pass saw, and how closely it was asked to look."""

from __future__ import annotations

import pytest

from modeldyno.core.result.trace_data import Activity, Executed, Layer, joined
from modeldyno.core.spec.probe_options import Observation, tokens
from modeldyno.errors import RequestError


def test_what_several_probes_saw_is_joined() -> None:
    """Each part comes from the probe that saw it; the last one to see it is believed."""
    layers = Activity(layers=(Layer(path="", kind="Net"),))
    operators = Activity(executed=(Executed(name="mm", calls=1, self_time=1, total_time=1),), held_in="fc")
    again = Activity(layers=(Layer(path="", kind="Net", calls=2),))
    whole = joined([layers, operators, again])
    assert whole == Activity(layers=again.layers, executed=operators.executed, held_in="fc")
    assert joined([]) is None


def test_none_found_is_not_the_same_as_not_looked_for() -> None:
    """A probe that looked for needless steps and found none replaces what was unknown, and only that."""
    looked, operators = Activity(wastes=()), Activity(held_in="fc")

    assert Activity().wastes is None
    assert joined([operators, looked]) == Activity(wastes=(), held_in="fc")
    assert joined([looked, operators]) == Activity(wastes=(), held_in="fc")


def test_layers_are_named_by_parts_of_their_path_or_class() -> None:
    """A name chooses the modules that have it in their path, or in their class whatever its case."""
    chosen = Observation(layers=("attention", "mlp"))
    assert chosen.named("encoder.attention.0", "Linear")
    assert chosen.named("h.0", "GPT2MLP")
    assert not chosen.named("encoder.norm", "LayerNorm")
    assert Observation().named("anything", "Linear")


def test_tokens_are_numbers() -> None:
    """Numbers of tokens are read once each; anything else is refused with the option's name."""
    assert tokens("32, 128,32", "--prompt") == (32, 128)
    for wrong in ("", "0", "-1", "8x", "1.5", "9999999"):
        with pytest.raises(RequestError, match="--prompt takes numbers of tokens"):
            tokens(wrong, "--prompt")
