"""Where a job that may start is put: one strategy a file, and the all-or-nothing placing of gangs.

Belongs here: choosing nodes and cards among those that fit. Does not belong here: whether a job may start at all
(``cycle``, ``throttle``, ``quotas.limits``) and the sentences about it (``explain``).
"""
