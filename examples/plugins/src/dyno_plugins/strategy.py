"""Tries the points of a space in a random order, which the seed of the study decides."""

from __future__ import annotations

from itertools import islice
from random import Random

from modeldyno.plugin import Strategy, Study, TrialRequest, open_points

MOST = 1000
"""Points that are drawn from: a space may have millions."""


class ShuffledStrategy(Strategy):
    """Draws one point after the other."""

    requires: tuple[str, ...] = ()

    def propose(self, study: Study) -> TrialRequest | None:
        """Return one of the points that no trial has had; None when there is none left.

        A pure function of the study: what it remembers must be in the study.
        """
        left = list(islice(open_points(study), MOST))
        return TrialRequest(point=Random(f"{study.seed}/{len(study.trials)}").choice(left)) if left else None
