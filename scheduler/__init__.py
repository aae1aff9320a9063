"""Who runs where, and when: load a snapshot, decide, apply the plan, let a backend make it so.

Belongs here: `engine` decides (pure), `backends` act on a cluster, `drive` plays both in memory without a server,
and the tasks around them that read and write rows.
Does not belong here: how much a team may have (`quotas`), what a job is and which states it has (`jobs`), and the
finding of faults (`monitoring`). Inside: tasks -> load, apply, reconcile -> backends | engine.
"""
