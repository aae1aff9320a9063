"""Jobs, the attempts to run them, and the append-only record of what happened. The row of a job is the truth."""

from __future__ import annotations

import secrets

import pgtrigger
from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from jobs.spec import PRIORITY_MOST
from jobs.states import LIVE, TERMINAL, TRANSITIONS, AttemptEnd, JobState
from teams.models import Team

KEY_LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"
KEY_LENGTH = 12
WAITING_STATES = (JobState.QUEUED.value, JobState.HELD.value)
LIVE_STATES = tuple(sorted(state.value for state in LIVE))
TERMINAL_STATES = tuple(sorted(state.value for state in TERMINAL))
STATE_CHOICES = [(state.value, state.value) for state in JobState]
END_CHOICES = [(end.value, end.value) for end in AttemptEnd]
MOVES = sorted({(row.origin.value, row.to.value) for row in TRANSITIONS if row.origin and row.origin != row.to})


def new_key() -> str:
    """A job's public name: 60 random bits in letters that cannot be taken for one another."""
    return "".join(secrets.choice(KEY_LETTERS) for _ in range(KEY_LENGTH))


class Job(models.Model):
    """What somebody wants to run, and how far it has come.

    ``key`` is its name outside (API, CLI, engine, backends). ``spec`` is what was asked for, without team and user;
    ``jobs.selectors.spec_of`` reads it. ``lane`` is shared by the jobs of one team and shape, which wait for the same
    reason. ``excluded`` lists nodes that it must not use: ``{"node": …, "until": unix seconds or null, "why": …}``.
    ``preemptions`` counts how often its cards were taken, for a higher priority or as a loan; ``returning``: the last
    attempt ended so. ``submitted_at`` is kept over requeues. ``version`` rises with every change of the row.
    """

    key = models.CharField(max_length=KEY_LENGTH, unique=True, default=new_key, editable=False)
    name = models.CharField(_("name"), max_length=200)
    team = models.ForeignKey(Team, models.PROTECT, related_name="jobs")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="jobs")
    cluster = models.ForeignKey("inventory.Cluster", models.PROTECT, related_name="jobs")
    spec = models.JSONField()
    lane = models.CharField(max_length=32)
    kind = models.CharField(_("kind"), max_length=20)
    gpus = models.PositiveIntegerField(_("GPUs"))
    priority = models.PositiveSmallIntegerField(_("priority"))
    preemptible = models.BooleanField(default=True)
    time_limit_s = models.FloatField(null=True, blank=True)
    min_runtime_s = models.FloatField(null=True, blank=True)
    retries = models.PositiveIntegerField(null=True, blank=True)
    labels = models.JSONField(default=dict, blank=True)
    excluded = models.JSONField(default=list, blank=True)

    state = models.CharField(_("state"), max_length=10, choices=STATE_CHOICES, default=JobState.QUEUED.value)
    state_at = models.DateTimeField(default=timezone.now)
    state_why = models.CharField(max_length=1000, blank=True)
    submitted_at = models.DateTimeField(_("submitted"), default=timezone.now, editable=False)
    first_started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(_("finished"), null=True, blank=True)
    exit_code = models.IntegerField(null=True, blank=True)

    held_why = models.CharField(max_length=1000, blank=True)
    backoff_until = models.DateTimeField(null=True, blank=True)
    not_before = models.DateTimeField(null=True, blank=True)

    attempt_count = models.PositiveIntegerField(default=0)
    own_failures = models.PositiveIntegerField(default=0)
    infrastructure_in_a_row = models.PositiveIntegerField(default=0)
    preemptions = models.PositiveIntegerField(default=0)
    preempted_at = models.DateTimeField(null=True, blank=True)
    returning = models.BooleanField(default=False)

    idempotency_key = models.CharField(max_length=255, null=True, blank=True)
    request_digest = models.CharField(max_length=64, blank=True)
    retry_of = models.ForeignKey("self", models.SET_NULL, null=True, blank=True, related_name="retried_as")
    version = models.PositiveIntegerField(default=1)

    class Meta:
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        constraints = [
            models.UniqueConstraint(
                fields=["user", "idempotency_key"],
                condition=Q(idempotency_key__isnull=False),
                name="job_idempotency_key_once",
            ),
            models.CheckConstraint(condition=~Q(name=""), name="job_named"),
            models.CheckConstraint(condition=Q(state__in=[state.value for state in JobState]), name="job_state_known"),
            models.CheckConstraint(condition=Q(priority__lte=PRIORITY_MOST), name="job_priority_bounded"),
            models.CheckConstraint(
                condition=Q(state__in=TERMINAL_STATES, finished_at__isnull=False)
                | (~Q(state__in=TERMINAL_STATES) & Q(finished_at=None)),
                name="job_finished_when_terminal",
            ),
            models.CheckConstraint(
                condition=Q(state=JobState.HELD.value) & ~Q(held_why="")
                | ~Q(state=JobState.HELD.value) & Q(held_why=""),
                name="job_held_says_why",
            ),
        ]
        indexes = [
            models.Index(fields=["cluster", "id"], condition=Q(state__in=WAITING_STATES), name="job_waiting"),
            models.Index(fields=["cluster", "id"], condition=Q(state__in=LIVE_STATES), name="job_live"),
            models.Index(fields=["cluster", "lane"], condition=Q(state__in=WAITING_STATES), name="job_waiting_lane"),
            models.Index(fields=["-submitted_at", "-id"], name="job_newest"),
            models.Index(fields=["state", "-submitted_at", "-id"], name="job_newest_by_state"),
            models.Index(fields=["team", "-submitted_at", "-id"], name="job_newest_by_team"),
            models.Index(fields=["user", "-submitted_at", "-id"], name="job_newest_by_user"),
            models.Index(fields=["cluster", "-submitted_at", "-id"], name="job_newest_by_cluster"),
            models.Index(fields=["team", "name", "-id"], name="job_by_name"),
        ]
        triggers = [
            # The database itself knows the state machine: no code, ours or another's, can leave a terminal state.
            pgtrigger.FSM(name="job_state_machine", field="state", transitions=MOVES),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.key})"


class Dependency(models.Model):
    """``job`` does not start before ``on`` has succeeded."""

    job = models.ForeignKey(Job, models.CASCADE, related_name="dependencies")
    on = models.ForeignKey(Job, models.CASCADE, related_name="dependents")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job", "on"], name="dependency_once"),
            models.CheckConstraint(condition=~Q(job=F("on")), name="dependency_on_another"),
        ]

    def __str__(self) -> str:
        return f"{self.job_id} after {self.on_id}"


class Attempt(models.Model):
    """One try to run a job. From ``started_at`` to ``ended_at`` it holds its GPUs.

    ``launch_begun_at`` is set before the backend is first asked to start it and ``launched_at`` after the backend has
    answered: without the first nothing of it can exist there. ``seen_at`` is when the backend first reported it.
    ``stop_end`` is the end that a request to stop leads to; ``stop_sent_at`` when the backend was last told of it.
    """

    job = models.ForeignKey(Job, models.PROTECT, related_name="attempts")
    number = models.PositiveIntegerField()
    key = models.CharField(max_length=200, unique=True)
    started_at = models.DateTimeField(default=timezone.now)
    launch_begun_at = models.DateTimeField(null=True, blank=True)
    launched_at = models.DateTimeField(null=True, blank=True)
    launch_problem = models.CharField(max_length=1000, blank=True)
    seen_at = models.DateTimeField(null=True, blank=True)
    running_at = models.DateTimeField(null=True, blank=True)
    stop_at = models.DateTimeField(null=True, blank=True)
    stop_end = models.CharField(max_length=12, choices=END_CHOICES, blank=True)
    stop_why = models.CharField(max_length=1000, blank=True)
    stop_grace_s = models.FloatField(null=True, blank=True)
    stop_sent_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    end = models.CharField(max_length=12, choices=END_CHOICES, blank=True)
    exit_code = models.IntegerField(null=True, blank=True)
    signal = models.PositiveSmallIntegerField(null=True, blank=True)
    note = models.CharField(max_length=1000, blank=True)
    forgotten_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = _("attempt")
        verbose_name_plural = _("attempts")
        constraints = [
            models.UniqueConstraint(fields=["job", "number"], name="attempt_number_once"),
            models.UniqueConstraint(fields=["job"], condition=Q(ended_at=None), name="attempt_one_live"),
            models.CheckConstraint(
                condition=Q(ended_at=None, end="") | (Q(ended_at__isnull=False) & ~Q(end="")),
                name="attempt_end_says_how",
            ),
            models.CheckConstraint(
                condition=Q(stop_at=None, stop_end="") | (Q(stop_at__isnull=False) & ~Q(stop_end="")),
                name="attempt_stop_says_why",
            ),
            models.CheckConstraint(
                condition=Q(ended_at=None) | Q(ended_at__gte=F("started_at")), name="attempt_ends_after_start"
            ),
        ]
        indexes = [
            models.Index(fields=["started_at"], condition=Q(ended_at=None), name="attempt_live"),
            models.Index(
                fields=["ended_at"], condition=Q(ended_at__isnull=False, forgotten_at=None), name="attempt_to_forget"
            ),
        ]

    def __str__(self) -> str:
        return self.key


class JobEvent(models.Model):
    """Something that happened to a job: never changed, never deleted."""

    job = models.ForeignKey(Job, models.PROTECT, related_name="events")
    at = models.DateTimeField(default=timezone.now)
    kind = models.CharField(max_length=20)
    actor = models.CharField(max_length=10)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, blank=True, related_name="+")
    origin = models.CharField(max_length=10, blank=True)
    to = models.CharField(max_length=10)
    reason = models.CharField(max_length=1000, blank=True)
    data = models.JSONField(default=dict, blank=True)

    class Meta:
        verbose_name = _("event")
        verbose_name_plural = _("events")
        indexes = [
            models.Index(fields=["job", "id"], name="job_event_of_job"),
            models.Index(fields=["at"], name="job_event_at"),
        ]
        triggers = [
            pgtrigger.Protect(name="append_only", operation=pgtrigger.Update | pgtrigger.Delete),
        ]

    def __str__(self) -> str:
        return f"{self.kind} of {self.job_id}"


class Subject(models.TextChoices):
    """What a change is about."""

    JOB = "job"
    NODE = "node"


class Change(models.Model):
    """A note to the loop of a cluster: look at this row again.

    Written in the transaction that changes the row, deleted by the loop that has taken it in. A note that is not yet
    committed when the loop looks is simply found the next time, so no order of commits can lose one.
    """

    cluster = models.ForeignKey("inventory.Cluster", models.CASCADE, related_name="+", db_constraint=False)
    subject = models.CharField(max_length=4, choices=Subject)
    ref = models.BigIntegerField()

    class Meta:
        indexes = [models.Index(fields=["cluster", "id"], name="change_of_cluster")]

    def __str__(self) -> str:
        return f"{self.subject} {self.ref}"
