"""Quotas: who may have how much, now and at 22:00.

Belongs here: guaranteed numbers, limits, lending and windows per team and GPU model. ``limits`` is the pure arithmetic
that the engine, the simulator and the pages share.

Does not belong here: the order in which jobs run and where they are placed (``scheduler``), the tree of teams and its
members (``teams``).
"""
