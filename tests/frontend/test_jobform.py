"""The submit form and the job it describes."""

from __future__ import annotations

from typing import Any

import pytest

from frontend.jobform import Asked, FormError, field_of, from_fields, from_yaml, to_fields
from jobs.spec import parse_job


def test_a_form_becomes_a_job() -> None:
    asked = from_fields(
        {
            "name": "train", "team": "vision", "command": "python train.py --note 'two words'", "gpus": "2",
            "replicas": "4", "model": "H100, A100 80G", "env": "A=1\nB=x=y\n", "priority": "high", "time_limit": "2h",
            "after": "one, two", "vram_gib": "10.5", "share": "on", "has_preemptible": "1",
        }
    )  # fmt: skip
    assert asked == Asked(
        {
            "name": "train", "command": ["python", "train.py", "--note", "two words"], "priority": "high", "gpus": 2,
            "replicas": 4, "model": ["H100", "A100 80G"], "env": {"A": "1", "B": "x=y"}, "time_limit": "2h",
            "after": ["one", "two"], "vram_gib": 10.5, "share": True, "preemptible": False,
        },
        "vision",
    )  # fmt: skip
    assert parse_job(asked.body, team="vision").groups[0].gpus == 2


@pytest.mark.parametrize(
    ("fields", "field", "problem"),
    [
        ({"command": "echo 'open"}, "command", "a quotation mark is not closed"),
        ({"env": "A=1\nnothing"}, "env", "line 2: must be NAME=VALUE"),
        ({"extra": "- a list"}, "yaml", "must be a mapping of names to values"),
    ],
)
def test_what_cannot_be_read_names_its_field(fields: dict[str, str], field: str, problem: str) -> None:
    with pytest.raises(FormError, match=problem) as raised:
        from_fields(fields)
    assert raised.value.field == field


def test_a_number_that_is_none_goes_on_to_the_reader_of_jobs() -> None:
    assert from_fields({"gpus": "two"}).body == {"gpus": "two"}


BODIES: list[dict[str, Any]] = [
    {"name": "a", "command": ["sh", "-c", "echo $HOME | wc"], "gpus": 1},
    {"name": "b", "env": {"A": "1"}, "model": "H100", "preemptible": False, "not_before": 90},
    {"name": "c", "groups": [{"name": "ps", "gpus": 1}, {"name": "worker", "gpus": 8, "replicas": 2}],
     "checkpoint": {"signal": "USR1", "grace": "60s"}, "labels": {"x": "y"}, "topology": {"require": "rack"}},
]  # fmt: skip


@pytest.mark.parametrize("body", BODIES)
def test_form_and_yaml_say_the_same(body: dict[str, Any]) -> None:
    asked = Asked(body, "vision", "aurora")
    through_yaml = from_yaml(asked.as_yaml())
    assert through_yaml == asked
    through_form = from_fields({**to_fields(asked), "has_preemptible": "1"})
    assert (through_form.team, through_form.cluster) == ("vision", "aurora")
    assert parse_job(through_form.body, team="vision") == parse_job(body, team="vision")


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "- x", "null", "team: [1]\nname: x", "&a [*a]"])
def test_bad_yaml_is_one_line(text: str) -> None:
    with pytest.raises(FormError) as raised:
        from_yaml(text)
    assert raised.value.field == "yaml"
    assert "\n" not in raised.value.problem


def test_paths_find_their_field() -> None:
    assert [field_of(path) for path in ("env.X", "after[0]", "gpus", "groups[1].gpus", "")] == [
        "env", "after", "gpus", "", "",
    ]  # fmt: skip
