"""Everything on one machine with one command: PostgreSQL, Valkey, web server, workers and beat under one supervisor.

Belongs here: the layout of a home, the two servers, the supervisor and the commands `up` and `down`. Nothing in here
imports Django: it must start in a moment and outlive whatever its children do. What needs Django is a child.
"""
