from __future__ import annotations

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.job.probe_options import ProbeOptions, check_evaluations, evaluation_name, is_evaluation


def test_names_that_no_module_has_are_found() -> None:
    """A part of a path, or of a class in any case, is enough."""
    observation = ProbeOptions(layers=("attention", "linear", "mlp"))

    assert observation.unmatched([("encoder.attention", "Block"), ("head", "Linear")]) == ("mlp",)
    assert ProbeOptions().unmatched([]) == ()
    assert observation.named("encoder.attention", "Block")
    assert not observation.named("norm", "LayerNorm")


def test_the_label_may_be_looked_for_among_any_number_of_outputs() -> None:
    """However it is spelt; the top one is the accuracy, and there is no top 0."""
    spelt = ("top3", "top-3", "top_3", "top1", "mae", "accuracy", "top_0")
    assert [evaluation_name(text) for text in spelt] == [
        "top_3", "top_3", "top_3", "accuracy", "mean_absolute_error", "accuracy", "top_0",
    ]  # fmt: skip
    assert [is_evaluation(name) for name in ("top_3", "top_5", "f1", "top_1", "top_0", "top_x")] == [
        True, True, True, False, False, False,
    ]  # fmt: skip


def test_an_unknown_evaluation_and_data_that_nothing_evaluates_are_refused() -> None:
    """Data need the name of an evaluation; a name needs no data here."""
    check_evaluations(("accuracy", "top_3"))
    check_evaluations((), needed=False)
    with pytest.raises(RequestError, match=r"evaluation 'accurazy'.*accuracy"):
        check_evaluations(("accurazy",))
    with pytest.raises(RequestError, match="`data` has no effect without `evaluate`"):
        check_evaluations((), needed=True)
