"""The job shim: one small process beside every local replica, which starts it, outlives the server and tells its end.

Belongs here: what must work while no server runs: process group, sub-reaper, output with rotation, limits, exit record.
Does not belong here: any decision about jobs, and any import that is slow or not from the standard library: one shim
is started for every replica, so json, dataclasses, typing, logging and subprocess stay outside.

It is started as a top-level package by path (see `start.py`), because importing `rota_client` first would cost more
than all the rest: inside, imports are relative and name only this package.
"""
