"""Who may have how much, now and at 22:00: guaranteed numbers, limits, lending and windows for team and pool.

Belongs here: the arithmetic of limits (`limits`, pure) and the rows, services and selectors around it.
Does not belong here: who goes first among those who may (`scheduler`), and what is in use, which is counted from rows.
"""
