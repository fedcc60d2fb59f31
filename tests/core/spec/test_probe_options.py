from __future__ import annotations

from modeldyno.core.spec.probe_options import Observation


def test_names_that_no_module_has_are_found() -> None:
    """A part of a path, or of a class in any case, is enough."""
    asked = Observation(layers=("attention", "linear", "mlp"))

    assert asked.unmatched([("encoder.attention", "Block"), ("head", "Linear")]) == ("mlp",)
    assert Observation().unmatched([]) == ()
    assert asked.named("encoder.attention", "Block")
    assert not asked.named("norm", "LayerNorm")
