"""The triggers by which the database itself keeps `allocated_mib` and `whole` of a GPU in step with its allocations.

They run once a statement, however many rows it writes, and lock the cards in the order of their ids, so that two
transactions cannot wait for each other. What would over-commit a card breaks its check constraints.
"""

from __future__ import annotations

import pgtrigger

_DELTA = """
    PERFORM 1 FROM inventory_gpu
      WHERE id IN (SELECT gpu_id FROM ({rows}) AS touched WHERE gpu_id IS NOT NULL)
      ORDER BY id FOR NO KEY UPDATE;
    UPDATE inventory_gpu AS gpu
      SET whole = CASE WHEN delta.wholes = 0 THEN gpu.whole ELSE delta.wholes > 0 END,
          allocated_mib = gpu.allocated_mib + delta.mib + delta.wholes * gpu.capacity_mib
      FROM (
        SELECT gpu_id, sum(sign * mib) AS mib, sum(CASE WHEN mib = 0 THEN sign ELSE 0 END)::int AS wholes
        FROM ({rows}) AS changed
        WHERE gpu_id IS NOT NULL
        GROUP BY gpu_id
      ) AS delta
      WHERE gpu.id = delta.gpu_id AND (delta.mib <> 0 OR delta.wholes <> 0);
    RETURN NULL;
"""
_TAKEN = "SELECT gpu_id, mib, 1 AS sign FROM new_rows WHERE released_at IS NULL"
_GIVEN = "SELECT gpu_id, mib, -1 AS sign FROM old_rows WHERE released_at IS NULL"

KEEP_THE_BOOKS = [
    pgtrigger.Trigger(
        name="books_take",
        level=pgtrigger.Statement,
        when=pgtrigger.After,
        operation=pgtrigger.Insert,
        referencing=pgtrigger.Referencing(new="new_rows"),
        func=_DELTA.format(rows=_TAKEN),
    ),
    pgtrigger.Trigger(
        name="books_move",
        level=pgtrigger.Statement,
        when=pgtrigger.After,
        operation=pgtrigger.Update,
        referencing=pgtrigger.Referencing(old="old_rows", new="new_rows"),
        func=_DELTA.format(rows=f"{_TAKEN} UNION ALL {_GIVEN}"),
    ),
    pgtrigger.Trigger(
        name="books_give",
        level=pgtrigger.Statement,
        when=pgtrigger.After,
        operation=pgtrigger.Delete,
        referencing=pgtrigger.Referencing(old="old_rows"),
        func=_DELTA.format(rows=_GIVEN),
    ),
]
