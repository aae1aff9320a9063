"""One in-memory driver: virtual clock and simulated backend (`rota simulate`), real clock and local one (`rota run`).

Belongs here: scenario files, the loop around `decide` without a database, and the commands that show it.
Does not belong here: Django, and any rule about who goes first, which is the engine's.
"""
