"""Jobs: submit, look, cancel, retry, hold, release; why they wait, what happened to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import django_filters
from django.db.models import Prefetch, QuerySet
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from api import job_body
from api.etags import answer
from api.events import EventSerializer, events_with_names
from api.explaining import ExplanationSerializer
from api.filters import SinceFilter
from api.logs import PARAMETERS as LOG_PARAMETERS
from api.logs import LogSerializer, PlainText, log_answer
from api.pages import JobCursor
from api.parsing import body_of, idempotency_key
from api.scopes import Scope
from api.views import KEY, MustSayWhySerializer, Resource, WhySerializer, parsed
from jobs import services, submission
from jobs.models import STATE_CHOICES, Attempt, Job
from jobs.selectors import job_for, visible_to
from jobs.submission import Submitted, team_for
from scheduler.inventory.models import Allocation
from scheduler.selectors import why_waiting
from scheduler.targets import target_for
from scheduler.why import explain_job
from teams.problems import Invalid

IDEMPOTENCY = OpenApiParameter(
    "Idempotency-Key", str, OpenApiParameter.HEADER, description="The same key and body give the same job, once."
)
IF_NONE_MATCH = OpenApiParameter("If-None-Match", str, OpenApiParameter.HEADER, description="304 where it still is so.")


class ReasonSerializer(serializers.Serializer[Any]):
    """Why a job waits: the first gate that blocks it."""

    code = serializers.CharField(help_text="One word, such as `quota` or `gpus`.")
    message = serializers.CharField(help_text="One sentence for people.")
    since = serializers.DateTimeField()


class JobSerializer(serializers.ModelSerializer[Job]):
    """A job as lists show it."""

    team = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    user = serializers.SlugRelatedField[Any](slug_field="username", read_only=True)
    cluster = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    state = serializers.ChoiceField(STATE_CHOICES, read_only=True)
    reason = serializers.SerializerMethodField(help_text="Why it waits; null while it does not, or nobody knows yet.")

    class Meta:
        model = Job
        fields = (
            "key", "name", "team", "user", "cluster", "kind", "priority", "gpus", "state", "state_at", "state_why",
            "reason", "submitted_at", "first_started_at", "finished_at", "exit_code", "attempt_count", "version",
        )  # fmt: skip

    @extend_schema_field(ReasonSerializer(allow_null=True))
    def get_reason(self, job: Job) -> dict[str, Any] | None:
        """The wait, which the view has read for all jobs at once."""
        why = self.context["whys"].get(job.pk)
        if why is None:
            return None
        since = why.since or job.state_at
        return ReasonSerializer({"code": why.hold.reason.value, "message": why.hold.message, "since": since}).data


class JobDetailSerializer(JobSerializer):
    """All about one job."""

    retry_of = serializers.SlugRelatedField[Any](slug_field="key", read_only=True, allow_null=True)
    after = serializers.SerializerMethodField(help_text="The keys of the jobs that it waits for.")
    spec = serializers.DictField(read_only=True, help_text="What was asked for.")
    labels = serializers.DictField(child=serializers.CharField(), read_only=True)

    class Meta(JobSerializer.Meta):
        fields = (
            *JobSerializer.Meta.fields, "time_limit_s", "preemptible", "not_before", "backoff_until", "own_failures",
            "preemptions", "retry_of", "after", "labels", "spec",
        )  # type: ignore[assignment]  # fmt: skip

    def get_after(self, job: Job) -> list[str]:
        """The keys, in the order in which they were named."""
        return [dependency.on.key for dependency in job.dependencies.select_related("on").order_by("id")]


class WhyWaitsSerializer(serializers.Serializer[Any]):
    """Where a job stands and why."""

    state = serializers.ChoiceField(STATE_CHOICES)
    since = serializers.DateTimeField(help_text="In this state, or for this reason, since.")
    code = serializers.CharField(allow_null=True, help_text="The reason in one word; null where it does not wait.")
    message = serializers.CharField(help_text="One sentence for people.")
    facts = serializers.DictField(help_text="The names and numbers in the sentence.")


class AllocationSerializer(serializers.ModelSerializer[Allocation]):
    """What one replica holds, or held, of one card: `slot` as planned, `gpu` as it is, null until that is known."""

    node = serializers.SlugRelatedField[Any](slug_field="name", read_only=True)
    gpu = serializers.IntegerField(source="gpu.index", allow_null=True, default=None, help_text="Index on the node.")
    gpu_uuid = serializers.CharField(source="gpu.uuid", allow_null=True, default=None)
    mib = serializers.IntegerField(help_text="Memory of a slice; 0: the whole card.")

    class Meta:
        model = Allocation
        fields = ("group", "replica", "node", "slot", "gpu", "gpu_uuid", "mib", "started_at", "released_at")


class AttemptSerializer(serializers.ModelSerializer[Attempt]):
    """One try to run a job. It holds its cards from `started_at` to `ended_at`."""

    allocations = AllocationSerializer(many=True, read_only=True)

    class Meta:
        model = Attempt
        fields = (
            "number", "key", "started_at", "running_at", "stop_at", "stop_why", "ended_at", "end", "exit_code",
            "signal", "note", "allocations",
        )  # fmt: skip


class JobFilter(django_filters.FilterSet):  # type: ignore[misc]
    """What a list of jobs can be narrowed down to."""

    state = django_filters.MultipleChoiceFilter(choices=STATE_CHOICES, help_text="May be given several times.")
    team = django_filters.CharFilter("team__slug")
    user = django_filters.CharFilter("user__username")
    cluster = django_filters.CharFilter("cluster__slug")
    name = django_filters.CharFilter("name", help_text="Exactly this name.")
    since = SinceFilter("submitted_at", "gte", help_text="Submitted then or later.")

    class Meta:
        model = Job
        fields: tuple[str, ...] = ()


class JobViewSet(Resource):
    """Jobs of the teams that one sees."""

    queryset = Job.objects.none()
    serializer_class = JobSerializer
    filterset_class = JobFilter
    pagination_class = JobCursor
    lookup_field = "key"
    lookup_value_regex = KEY
    scopes = dict.fromkeys(("create", "cancel", "retry", "hold", "release"), Scope.SUBMIT)

    def get_queryset(self) -> QuerySet[Job]:
        """Those that whoever asks may see."""
        return visible_to(self.user)

    def context_of(self, rows: list[Any]) -> dict[str, Any]:
        """Why they wait."""
        return {"whys": why_waiting(rows, timezone.now())}

    @extend_schema(summary="List jobs, newest first")
    def list(self, request: Request) -> Response:
        """A page of jobs."""
        return self.page(self.filter_queryset(self.get_queryset()), request, JobSerializer)

    @extend_schema(
        summary="Submit a job",
        request={"application/json": job_body.SCHEMA},
        responses={
            201: JobDetailSerializer,
            200: OpenApiResponse(JobDetailSerializer, "It was submitted before, with the same Idempotency-Key."),
        },
        parameters=[IDEMPOTENCY],
        examples=[OpenApiExample("hello", dict(job_body.EXAMPLE), request_only=True)],
    )
    def create(self, request: Request) -> Response:
        """The body has the keys of a scenario file's job, and `cluster`. A job above a limit is `rejected`."""
        key, body = idempotency_key(request), body_of(request)
        slug, cluster = (_optional_text(body, name) for name in ("team", "cluster"))
        team = team_for(self.user, slug)
        target = target_for(user=self.user, team=team, cluster=cluster)
        return self._submitted(
            submission.submit(user=self.user, team=team, target=target, body=body, idempotency_key=key)
        )

    @extend_schema(summary="Look at a job", responses=JobDetailSerializer, parameters=[IF_NONE_MATCH])
    def retrieve(self, request: Request, key: str) -> Response:
        """All about one job."""
        return answer(request, self._detail(self._job(key)))

    @extend_schema(summary="Cancel a job", request=WhySerializer, responses=JobDetailSerializer)
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, key: str) -> Response:
        """End it for good: at once where it waits, else its processes are asked to end first."""
        return self._done(key, services.cancel, parsed(WhySerializer, body_of(request)))

    @extend_schema(summary="Hold a job", request=MustSayWhySerializer, responses=JobDetailSerializer)
    @action(detail=True, methods=["post"])
    def hold(self, request: Request, key: str) -> Response:
        """Keep a waiting job from starting until somebody releases it."""
        return self._done(key, services.hold, parsed(MustSayWhySerializer, body_of(request)))

    @extend_schema(summary="Release a job", request=WhySerializer, responses=JobDetailSerializer)
    @action(detail=True, methods=["post"])
    def release(self, request: Request, key: str) -> Response:
        """Let a held job wait for its turn again."""
        return self._done(key, services.release, parsed(WhySerializer, body_of(request)))

    @extend_schema(summary="Requeue a running job", request=MustSayWhySerializer, responses=JobDetailSerializer)
    @action(detail=True, methods=["post"])
    def requeue(self, request: Request, key: str) -> Response:
        """Stop it and let it wait again; for admins."""
        return self._done(key, services.requeue, parsed(MustSayWhySerializer, body_of(request)))

    @extend_schema(
        summary="Try an ended job again",
        request=None,
        responses={201: JobDetailSerializer, 200: JobDetailSerializer},
        parameters=[IDEMPOTENCY],
    )
    @action(detail=True, methods=["post"])
    def retry(self, request: Request, key: str) -> Response:
        """A new job that asks for the same."""
        idempotency, job = idempotency_key(request), self._job(key)
        target = target_for(user=self.user, team=job.team, cluster=job.cluster.slug)
        return self._submitted(submission.retry(user=self.user, job=job, target=target, idempotency_key=idempotency))

    @extend_schema(summary="Why it waits", responses=WhyWaitsSerializer)
    @action(detail=True, filterset_class=None)
    def why(self, request: Request, key: str) -> Response:
        """The first gate that blocks it, in one word, in a sentence, and in facts."""
        job = self._job(key)
        why = why_waiting([job], timezone.now()).get(job.pk)
        if why is not None:
            code, message, facts = why.hold.reason.value, why.hold.message, dict(why.hold.facts)
            plain = {"since": why.since or job.state_at, "code": code, "message": message, "facts": facts}
        else:
            message = job.state_why or f"it is {job.state}"
            plain = {"since": job.state_at, "code": None, "message": message, "facts": {}}
        return Response(WhyWaitsSerializer({"state": job.state, **plain}).data)

    @extend_schema(summary="All that is known of why it waits", responses={200: ExplanationSerializer, 204: None})
    @action(detail=True, filterset_class=None)
    def explanation(self, request: Request, key: str) -> Response:
        """The funnel, who is ahead, the expected start, what would start it now. 204 where it does not wait."""
        told = explain_job(self._job(key), timezone.now())
        return Response(status=204) if told is None else Response(ExplanationSerializer(told).data)

    @extend_schema(summary="Its attempts, oldest first", responses=AttemptSerializer(many=True))
    @action(detail=True, filterset_class=None, pagination_class=None)
    def attempts(self, request: Request, key: str) -> Response:
        """Each with what its replicas hold or held."""
        held = Allocation.objects.select_related("node", "gpu").order_by("id")
        rows = self._job(key).attempts.order_by("number").prefetch_related(Prefetch("allocations", held))
        return Response(AttemptSerializer(rows, many=True).data)

    @extend_schema(summary="What happened to it, newest first", responses=EventSerializer(many=True))
    @action(detail=True, filterset_class=None)
    def events(self, request: Request, key: str) -> Response:
        """Each change of its state, with who caused it and why."""
        self.by_cursor()
        return self.page(events_with_names().filter(job=self._job(key)), request, EventSerializer)

    @extend_schema(
        summary="What it has written",
        parameters=LOG_PARAMETERS,
        responses={(200, "application/json"): LogSerializer, (200, "text/plain"): OpenApiTypes.STR},
    )
    @action(detail=True, filterset_class=None, pagination_class=None, renderer_classes=[JSONRenderer, PlainText])
    def logs(self, request: Request, key: str) -> Any:
        """A piece of one replica's output from an offset on, in JSON or as plain text; waits for more if asked to."""
        return log_answer(request, self._job(key))

    def _job(self, key: str) -> Job:
        return job_for(self.user, key)

    def _detail(self, job: Job) -> dict[str, Any]:
        return JobDetailSerializer(job, context=self.context_of([job])).data

    def _done(self, key: str, verb: Callable[..., Job], said: dict[str, Any]) -> Response:
        return answer(self.request, self._detail(verb(user=self.user, job=self._job(key), why=said["why"])))

    def _submitted(self, submitted: Submitted) -> Response:
        data = self._detail(submitted.job)
        headers = {"Location": f"/api/v1/jobs/{submitted.job.key}/"}
        if submitted.created:
            return answer(self.request, data, status=201, headers=headers)
        return answer(self.request, data, headers=headers | {"Idempotency-Replayed": "true"})


def _optional_text(body: dict[str, Any], name: str) -> str | None:
    """Take a name out of the body. Raises Invalid."""
    value = body.pop(name, None)
    if value is not None and (not isinstance(value, str) or not 0 < len(value) <= 200):
        raise Invalid("invalid", f"{name}: must be a short name", field=name)
    return value
