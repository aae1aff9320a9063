"""What `rota bench` runs: one workload a file, with its gates beside it.

Belongs here: making the load, measuring it, a reference measured in the same run, and the gate that can fail a build.
Does not belong here: tests of right and wrong, which are in `tests/`.
"""
