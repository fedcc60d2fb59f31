"""What a search strategy offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modeldyno.sweeps.study.study import Study, TrialRequest


class Strategy(ABC):
    """Chooses the next trial of a Study."""

    requires: tuple[str, ...]

    @abstractmethod
    def propose(self, study: Study) -> TrialRequest | None:
        """Return what to measure next from `study.space`; None if nothing more can be learned.

        It must be a pure function of the study, with `study.seed` as its seed. A point that turns out to be
        impossible is added to the study as a skipped trial, and the strategy is called again.
        """
