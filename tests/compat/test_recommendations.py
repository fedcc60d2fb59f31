"""What measurements suggest, and what they lack together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from modeldyno.base.job.input_spec import InputSpec
from modeldyno.compat.recommendations import recommend
from modeldyno.testing.sample_results import a_failed_result, a_job, a_result

if TYPE_CHECKING:
    from modeldyno.base.result.result import Result


def measured(*, source: str | None = None, **config: Any) -> Result:
    """Make a Result with inputs of a file, or of nobody."""
    inputs = (InputSpec(name="image", source=source),)
    job = a_job()
    return a_result(job=replace(job, inputs=inputs, config={**job.config, **config}))


def codes(*results: Result) -> set[str]:
    """Name what is recommended of the guidelines."""
    return {item.code for item in recommend(results)} & {"representative-data", "several-configurations"}


def test_measurements_that_nobody_gave_inputs_to_are_not_representative() -> None:
    """One with a file is enough; of what failed nothing is said."""
    assert "representative-data" in codes(measured())
    assert "representative-data" not in codes(measured(), measured(source="test.npz"))
    assert not codes(a_failed_result())
    assert not codes()


def test_one_configuration_is_few() -> None:
    """However often it was measured."""
    assert "several-configurations" in codes(measured(), measured())
    assert "several-configurations" not in codes(measured(), measured(batch_size=32))
    item = next(one for one in recommend([measured()]) if one.code == "several-configurations")
    assert str(item).startswith("several-configurations: one configuration was measured: another batch size")
