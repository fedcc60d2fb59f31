"""What the layers of a torch model take and return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from modeldyno.base import plugins
from modeldyno.conversion.agreement.inner_values import End
from modeldyno.conversion.graph_values import arrays_of, source_moments, values_of

torch = pytest.importorskip("torch")


class Twice(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Calls one layer once, and another twice."""

    def __init__(self) -> None:
        super().__init__()
        self.once, self.twice = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)

    def forward(self, x: Any) -> Any:
        """Return what all calls make of x."""
        return self.twice(self.once(self.twice(x)))


def test_the_moments_of_a_run_are_in_its_order() -> None:
    """A layer that is called twice is left out, and no hook stays behind."""
    module = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU(), Twice().once).eval()
    objects = plugins.objects()
    for network, expected in ((module[:2], ["0", "0", "1", "1"]), (Twice().eval(), ["once", "once"])):
        ref = objects.offer(network, name="net", example=torch.ones(2, 6))
        model = plugins.loader(ref.scheme).load(ref, seed=0, trust=False)
        name = model.inputs[0].name
        moments = source_moments(model, "torch", {name: np.ones((2, 6), np.float32)}, 2)
        objects.withdraw(ref)

        assert [moment.layer for moment in moments] == expected
        assert moments[0].kind == "Linear"
        assert values_of(moments)[expected[0], End.INPUT][0].shape == (2, 6)
        assert not any(part._forward_hooks for part in network.modules())


@dataclass
class Output:
    """As models of transformers return it."""

    hidden: Any
    note: str


def test_tensors_are_found_within_what_a_layer_returns() -> None:
    """In tuples, mappings and dataclasses; bfloat16 becomes float32."""
    one = torch.ones(2)
    arrays = list(arrays_of((Output(one, "no"), {"a": [one.bfloat16(), None]}, Output)))

    assert [array.dtype for array in arrays] == [np.float32, np.float32]
