"""Scenario files: a small cluster, its teams, a policy, jobs, faults and edits in one YAML or JSON file.

Belongs here: the values of such a file and their parsing, with errors that name path and fault.
Does not belong here: playing it (``scheduler.drive``), and what a job alone may say (``jobs.spec``).
"""

from scheduler.drive.scenario.values import (
    CancelEdit,
    Edit,
    Fault,
    FaultKind,
    JobProfile,
    NodeAction,
    NodeEdit,
    NodeSpec,
    PolicyChange,
    PolicyEdit,
    QuotaEdit,
    Scenario,
    ScenarioJob,
    Silence,
)

__all__ = [
    "CancelEdit",
    "Edit",
    "Fault",
    "FaultKind",
    "JobProfile",
    "NodeAction",
    "NodeEdit",
    "NodeSpec",
    "PolicyChange",
    "PolicyEdit",
    "QuotaEdit",
    "Scenario",
    "ScenarioJob",
    "Silence",
]
