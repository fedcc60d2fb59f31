"""The configurations of a study by name: ``text_recognition_3`` and ``text_recognition_default``.

The number is that of `Study.configuration_numbers`. Exported directories have the same names.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from modeldyno.core.study.search_space import key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modeldyno.core.spec.knob import KnobValue
    from modeldyno.core.study.study import Study

NAMED = re.compile(r"(?:(?P<model>.+?)_)?(?:config_)?(?P<number>\d+|default)")
"""``text_3``, ``3``, ``text_default``; and ``text_config_3``, as Model Analyzer writes it."""


def base_name(study: Study) -> str:
    """Return the name of a study's model that is a valid directory name."""
    named = study.name or study.job.model.locator
    return re.sub(r"[^\w.-]+", "-", re.split(r"[/#]", named)[-1]).strip("-.") or "model"


def configuration_number(study: Study, point: Mapping[str, KnobValue]) -> str:
    """Return the number of a point's configuration, or ``default``; empty if it was not measured."""
    return study.configuration_numbers.get(key(study.configuration(point)), "")


def configuration_label(study: Study, point: Mapping[str, KnobValue]) -> str:
    """Return the name of a point's configuration, such as ``text_recognition_3``."""
    number = configuration_number(study, point)
    return f"{base_name(study)}_{number}" if number else ""
