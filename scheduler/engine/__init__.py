"""The engine: who starts, who waits and why, as pure functions on plain values.

Belongs here: the values of one decision (cluster, queue, quota, policy, plan) and the rules that make a plan of them.
Only NumPy and the standard library; time and randomness are arguments.

Does not belong here: clocks, databases, networks, Django, backends, the parsing of files and the states of jobs.

Start reading at :mod:`scheduler.engine.cycle` (``decide``); the values are in ``demand``, ``cluster``, ``roster``,
``snapshot``, ``policy`` and ``plan``.
"""
