"""A Study as a kind of document."""

from __future__ import annotations

from typing import Any

from modeldyno.base.document_kind import DocumentKind
from modeldyno.sweeps import codec as codec_study
from modeldyno.sweeps.recompute import check_study
from modeldyno.sweeps.study.ranking import ranking
from modeldyno.sweeps.study.study import Study
from modeldyno.sweeps.views import blocks, page, tables
from modeldyno.sweeps.views.configurations import configurations_title


def _encode(study: Study, **derived: Any) -> bytes:
    return codec_study.encode(study, ranking=ranking(study), **derived)


STUDY = DocumentKind(
    name=codec_study.KIND, document=Study, encode=_encode, decode=codec_study.decode, checks=check_study,
    headline=blocks.headline, blocks=blocks.blocks, page=page.page, numbers=tables.numbers,
    title=blocks.title, brief=blocks.brief,
    columns=tables.USUAL_COLUMNS, configurations_title=configurations_title,
)  # fmt: skip
