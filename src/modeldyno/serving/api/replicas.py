"""``modeldyno.serving.replicas``: how many servers a demand takes, and what they cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.constraints import Constraint
from modeldyno.base.result.result import Result
from modeldyno.profiling.api.error_wording import reword_errors
from modeldyno.profiling.api.profile import as_tuple
from modeldyno.serving.load.capacity import Capacity
from modeldyno.serving.load.load_curve import LoadCurve
from modeldyno.serving.loadtest.replicas import CostAnswer, CostOptions
from modeldyno.stores.lookup import find_any

if TYPE_CHECKING:
    from collections.abc import Sequence


@reword_errors
def replicas(
    result: Result | LoadCurve | Capacity | str | Path,
    *,
    demand: float | str | None = None,
    price: str | None = None,
    require: str | Sequence[str] = (),
) -> CostAnswer:
    """Compute how many replicas a demand takes and what they cost, as ``--demand`` and ``--price`` do.

    Args:
        result: a Result of `load`, a LoadCurve, a Capacity; a file, or an id or tag of the store.
        demand: requests per second, or text such as ``"1000/s"``.
        price: price of a replica, such as ``"1.20/h"`` or ``"876 EUR/month"``.
        require: bounds that each replica must hold, for a Result; a load series has its own.

    Returns:
        The answer: ``.provision`` has the number of replicas and the rate of each, ``.costs`` what the work
        costs; ``.why`` says why the number is unknown.

    Raises:
        RequestError: neither a demand nor a price is given, one of them is wrong, or the Result was not
            measured under load.
    """
    options = CostOptions.parse(None if demand is None else str(demand), price)
    if not options.is_set:
        raise RequestError("Nothing to compute; give a demand, such as '1000/s', or a price.")
    bounds = tuple(map(Constraint.parse, as_tuple(require, "require")))
    stored = find_any(str(result)) if isinstance(result, str | Path) else result
    if not isinstance(stored, Result | LoadCurve | Capacity):
        raise RequestError("Replicas follow from a result of a load, a load curve or the largest load.")
    if bounds and not isinstance(stored, Result):
        raise RequestError("`require` applies to a result; a load series has bounds of its own.")
    return options.of_document(stored, bounds)
