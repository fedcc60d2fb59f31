"""The numbers and facts of results, by which they are filtered; those of earlier results are filled in."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from modeldyno.base import codec
from modeldyno.base.errors import ModelDynoError
from modeldyno.stores.results import ADVICE, fact_rows, number_rows
from modeldyno.stores.rows import verified_document

revision = "0005"
down_revision = "0004"

_RESULTS = sa.table("results", sa.column("id"), sa.column("checksum"), sa.column("document"))


def upgrade() -> None:
    bytewise = sa.String().with_variant(sa.String(collation="C"), "postgresql")

    def of_result() -> sa.Column[str]:
        results = sa.ForeignKey("results.id", ondelete="CASCADE")
        return sa.Column("result_id", bytewise, results, primary_key=True)

    numbers = op.create_table(
        "numbers",
        of_result(),
        sa.Column("query", bytewise, primary_key=True),
        *(sa.Column(name, sa.Float(53)) for name in ("value", "raw", "low", "high")),
        sqlite_with_rowid=False,
    )
    facts = op.create_table(
        "facts",
        of_result(),
        sa.Column("name", bytewise, primary_key=True),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("number", sa.Float(53)),
        sqlite_with_rowid=False,
    )
    connection = op.get_bind()
    for result_id in list(connection.scalars(sa.select(_RESULTS.c.id))):
        row = connection.execute(sa.select(_RESULTS).where(_RESULTS.c.id == result_id)).one()
        try:
            data = verified_document(row.document, row.checksum, result_id, ADVICE)
            result = codec.decode(data, origin=result_id)
        except ModelDynoError:  # damaged: it stays listed, and no condition on a number holds for it
            continue
        for table, rows in ((numbers, number_rows(result)), (facts, fact_rows(result))):
            if rows:
                connection.execute(table.insert(), rows)
