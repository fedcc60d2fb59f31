"""CSV (RFC 4180): a row for each metric, scope and statistic, in base units and unrounded."""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING

from modeldyno.base.kinds import kind_of
from modeldyno.base.report.blocks import Align

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.base.metrics.constraints import Judgement
    from modeldyno.base.report.blocks import Column, Table
    from modeldyno.base.result.result import Result

suffix = ".csv"
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Characters with which a spreadsheet formula begins."""
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|inf|nan)")


def render(document: Result, *, judgements: Sequence[Judgement] = ()) -> str:
    """Write the numbers of a Result."""
    del judgements
    return table(kind_of(document).numbers(document))


def table(block: Table) -> str:
    """Write a table; right-aligned columns are numbers."""
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(_text(column.title) for column in block.columns)
    for row in block.rows:
        writer.writerow(_cell(text, column) for text, column in zip(row, block.columns, strict=True))
    return file.getvalue()


def _cell(text: str, column: Column) -> str:
    """Escape text that a spreadsheet would run as a formula; numbers may begin with a sign."""
    return text if column.align is Align.RIGHT and _NUMBER.fullmatch(text) else _text(text)


def _text(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text
