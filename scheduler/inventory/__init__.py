"""The hardware as rows: clusters, pools, nodes, GPUs and who holds them.

Belongs here: those rows, what brings them up to date with what a backend reports, and who may use a cluster.
Does not belong here: which card a job gets (`scheduler.engine`), the finding of faults (`monitoring`).
"""
