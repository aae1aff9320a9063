"""What makes a first start worth looking at: a simulated cluster, four teams, and a living trickle of their jobs.

Belongs here: that cluster, those teams, what they submit and when; and `this machine` as a cluster of its own.
Does not belong here: how a virtual cluster works (`scheduler.backends.virtual`) and anything that real clusters need.
"""
