"""Scenario files: a small cluster, its teams, a policy, jobs, faults and edits in one YAML or JSON file.

Belongs here: the values of such a file and their parsing, with errors that name path and fault.
Does not belong here: playing it (``scheduler.drive``), and what a job alone may say (``jobs.spec``).
"""

from jobs.reading import SpecError
from scheduler.drive.scenario.events import with_quota
from scheduler.drive.scenario.not_yet import not_yet
from scheduler.drive.scenario.parse import load_file, load_scenario, parse_scenario
from scheduler.drive.scenario.policy import changed
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
    "SpecError",
    "changed",
    "load_file",
    "load_scenario",
    "not_yet",
    "parse_scenario",
    "with_quota",
]
