"""All that is known of why a job waits, as the API describes it."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers


class StepSerializer(serializers.Serializer[Any]):
    """What is left after one gate of the funnel."""

    gate = serializers.CharField(
        help_text="In order: `model healthy labels taints excluded host free memory together topology`."
    )
    nodes = serializers.IntegerField()
    cards = serializers.IntegerField(help_text="Cards that count at this gate.")
    most = serializers.IntegerField(help_text="The most of them on one node.")
    lost = serializers.IntegerField(help_text="Nodes that this gate took away.")
    named = serializers.ListField(child=serializers.CharField(), help_text="The first of those.")


class FunnelSerializer(serializers.Serializer[Any]):
    """The funnel of one group of replicas."""

    group = serializers.CharField()
    replicas = serializers.IntegerField()
    gpus = serializers.IntegerField(help_text="Per replica.")
    fit = serializers.IntegerField(help_text="Replicas that fit as things stand.")
    steps = StepSerializer(many=True)


class BeforeSerializer(serializers.Serializer[Any]):
    """A job ahead in the line."""

    job = serializers.CharField()
    team = serializers.CharField()
    gpus = serializers.IntegerField()
    priority = serializers.IntegerField()
    submitted = serializers.DateTimeField()


class HolderSerializer(serializers.Serializer[Any]):
    """A job that holds some of a quota."""

    job = serializers.CharField()
    team = serializers.CharField()
    gpus = serializers.FloatField()
    since = serializers.DateTimeField()


class QuotaInTheWaySerializer(serializers.Serializer[Any]):
    """The limit that the job would break."""

    team = serializers.CharField()
    model = serializers.CharField()
    used = serializers.FloatField()
    limit = serializers.FloatField()
    need = serializers.FloatField()
    jobs = serializers.IntegerField(help_text="How many jobs hold some of it.")
    holders = HolderSerializer(many=True)


class KeptSerializer(serializers.Serializer[Any]):
    """Cards that the job could use and that are kept for another."""

    job = serializers.CharField()
    team = serializers.CharField()
    gpus = serializers.IntegerField()
    at = serializers.DateTimeField(allow_null=True, help_text="From when on; null: at once.")


class AheadSerializer(serializers.Serializer[Any]):
    """Who stands before the job."""

    jobs = serializers.IntegerField()
    gpus = serializers.IntegerField()
    first = BeforeSerializer(many=True)
    quota = QuotaInTheWaySerializer(allow_null=True)
    kept = KeptSerializer(many=True)


class SentenceSerializer(serializers.Serializer[Any]):
    """A reason with the facts in it."""

    code = serializers.CharField()
    message = serializers.CharField()
    facts = serializers.DictField()


class EstimateSerializer(serializers.Serializer[Any]):
    """The expected start, from its 10 % to its 90 % quantile."""

    low = serializers.DateTimeField(allow_null=True)
    high = serializers.DateTimeField(allow_null=True, help_text="Null where nobody can know; `why` says so.")
    why = SentenceSerializer(allow_null=True)


class RemedySerializer(serializers.Serializer[Any]):
    """A change that the engine has been seen to start the job with."""

    kind = serializers.CharField()
    message = serializers.CharField()
    template = serializers.CharField()
    facts = serializers.DictField()
    takes = serializers.ListField(child=serializers.CharField(), help_text="Jobs that would have to give way.")


class ExplanationSerializer(serializers.Serializer[Any]):
    """Where a waiting job is stopped, behind whom, until when, and what would start it now."""

    as_of = serializers.DateTimeField(help_text="At most five seconds ago.")
    funnel = FunnelSerializer(many=True)
    ahead = AheadSerializer(allow_null=True)
    estimate = EstimateSerializer()
    remedies = RemedySerializer(many=True)
