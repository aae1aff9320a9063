"""Writing many rows in one statement, whatever their number: columns travel as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import connection


def update_rows(table: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]], extra: str = "") -> int:
    """Set columns of rows by their id; returns how many changed.

    ``columns`` are (name, PostgreSQL type) with the id first, ``rows`` have a value for each; ``extra`` is more of the
    SET clause. Names and types come from our own code, never from people.
    """
    if not rows:
        return 0
    names = [f'"{name}"' for name, _ in columns]
    sets = ", ".join(f"{name} = fresh.{name}" for name in names[1:])
    arrays = ", ".join(f"%s::{kind}[]" for _, kind in columns)
    sql = (
        f"UPDATE {table} AS t SET {sets}{extra} FROM unnest({arrays}) AS fresh({', '.join(names)})"  # noqa: S608
        f" WHERE t.{names[0]} = fresh.{names[0]}"
    )
    with connection.cursor() as cursor:
        cursor.execute(sql, [[row[place] for row in rows] for place in range(len(columns))])
        return int(cursor.rowcount)


def insert_rows(
    table: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]], returning: str = "id"
) -> list[tuple[Any, ...]]:
    """Insert rows, ``columns`` as for :func:`update_rows`; returns the columns ``returning`` of each, in no order."""
    if not rows:
        return []
    names = ", ".join(f'"{name}"' for name, _ in columns)
    arrays = ", ".join(f"%s::{kind}[]" for _, kind in columns)
    sql = f"INSERT INTO {table} ({names}) SELECT {names} FROM unnest({arrays}) AS fresh({names}) RETURNING {returning}"  # noqa: S608
    with connection.cursor() as cursor:
        cursor.execute(sql, [list(column) for column in zip(*rows, strict=True)])
        return list(cursor.fetchall())
