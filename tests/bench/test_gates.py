"""Gates fail when they should, and say so in a line; targets never fail."""

import json
import math
from pathlib import Path

import pytest

from bench.gates import Gate, Target, shown
from bench.report import Report, summary, write


@pytest.mark.parametrize(
    ("value", "sense", "limit", "met"),
    [
        (1.0, "at_least", 1.0, True),
        (0.99, "at_least", 1.0, False),
        (1.0, "at_most", 1.0, True),
        (1.01, "at_most", 1.0, False),
        (math.nan, "at_least", 0.0, False),
        (math.nan, "at_most", 1.0, False),
    ],
)
def test_a_bar_is_met_up_to_its_limit(value: float, sense: str, limit: float, met: bool) -> None:
    assert Gate("it", value, sense, limit).met is met  # type: ignore[arg-type]


def test_only_gates_fail_a_report() -> None:
    gate, target = Gate("ratio", 0.5, "at_least", 1.25), Target("speed", 1_234.5, "at_least", 50_000, "/s")
    report = Report("some", {}, (gate, target, Gate("count", 0, "at_most", 0)))
    assert report.failed == [gate]
    assert str(gate) == "ratio is 0.5, it has to be ≥ 1.25"
    assert str(target) == "speed is 1,234 /s, it has to be ≥ 50,000 /s"


def test_a_report_is_kept_with_what_it_was_measured_on(tmp_path: Path) -> None:
    path = write(Report("some", {"answer": 42}, (Gate("ratio", 0.5, "at_least", 1.25),)), tmp_path / "results")
    kept = json.loads(path.read_text())
    assert path == tmp_path / "results" / "some.json"
    assert [each.name for each in path.parent.iterdir()] == ["some.json"]
    assert (kept["name"], kept["answer"]) == ("some", 42)
    assert kept["bars"] == [
        {"kind": "gate", "what": "ratio", "value": 0.5, "sense": "at_least", "limit": 1.25, "unit": "", "met": False}
    ]
    assert kept["machine"].keys() == {"cores", "processor", "system", "python", "numpy", "load"}


def test_the_table_has_a_row_for_every_bar() -> None:
    gate = Gate("ratio", 0.5, "at_least", 1.25)
    table = summary([Report("one", {}, (gate, gate)), Report("other", {}, (Target("speed", 2, "at_least", 3),))])
    assert list(table.columns[0].cells) == ["one", "", "other"]
    assert list(table.columns[4].cells) == ["FAILED", "FAILED", "target not met on this machine"]


@pytest.mark.parametrize(
    ("value", "text"), [(0.123456, "0.1235"), (12, "12"), (12_345.6, "12,346"), (2.0, "2"), (math.inf, "inf")]
)
def test_numbers_for_people(value: float, text: str) -> None:
    assert shown(value) == text
