"""What makes a plan real on one kind of cluster: the Protocol in `base`, one file (or package) for each backend.

Belongs here: observe, launch, stop and logs, idempotent and keyed by attempt; the client library of each cluster.
Does not belong here: decisions (`scheduler.engine`), retries (the caller's) and Django: a backend sees no rows.
"""
