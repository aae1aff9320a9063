"""The memory estimator: how much memory a model needs on each GPU, as pure functions on plain values.

Belongs here: the formulas with their sources, the table of known models (``models.toml``) and the search for the
smallest setup. Only the standard library; figures are bytes inside and MiB in what is returned.

Does not belong here: what a cluster has free (``engine``) and the command (``scheduler.estimate_command``).

Start reading at :mod:`scheduler.estimate.memory` (``estimate``) and :mod:`scheduler.estimate.smallest`.
"""
