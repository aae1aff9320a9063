"""Every string has its translation: those of the pages, of the engine, and of what services refuse."""

from __future__ import annotations

import ast
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from django.utils.translation import override

from frontend import clock, messages, words
from frontend.sentences import HOLDS, SENTENCES
from jobs.states import AttemptEnd, Event, JobState, Verdict, after_attempt
from scheduler.engine.cluster import NodeState
from scheduler.engine.policy import Retry
from scheduler.engine.reasons import Reason
from tests.needs import ROOT

TEMPLATES = sorted((ROOT / "frontend" / "templates").rglob("*.html"))
CATALOG = messages.read("zh_Hans")
SAME_IN_ALL = {"English", "Rota", "YAML", "简体中文", "Apache-2.0", "GPU", "#", "–"}


def test_the_catalog_has_exactly_the_strings_of_the_sources() -> None:
    found = {(message.context, str(message.id)) for message in messages.template() if message.id}
    known = {(message.context, str(message.id)) for message in CATALOG if message.id}
    assert found - known == set(), "run `make messages` and translate what is new"
    assert known - found == set(), "run `make messages`"


def test_nothing_is_missing_or_only_guessed() -> None:
    wrong = [message.id for message in CATALOG if message.id and (message.fuzzy or not messages._done(message.string))]
    assert wrong == []


def test_placeholders_survive_translation() -> None:
    def marks(text: str) -> list[str]:
        return sorted(re.findall(r"%\(\w+\)[sd]|%d|\{\w+(?::g)?\}", text))

    pairs = [
        (message.id, message.string) if isinstance(message.id, str) else (message.id[1], (message.string or ("",))[0])
        for message in CATALOG
        if message.id
    ]
    assert [wanted for wanted, said in pairs if marks(wanted) != marks(str(said))] == []


def test_the_compiled_catalog_is_that_catalog() -> None:
    assert messages.path_of("zh_Hans", "mo").read_bytes() == messages.compiled(CATALOG)


def test_reasons_states_and_events_all_have_words() -> None:
    assert list(words.REASONS) == [reason.value for reason in Reason]
    assert set(words.JOB_STATES) == {state.value for state in JobState}
    assert set(words.NODE_STATES) == {state.value for state in NodeState}
    assert set(words.EVENTS) == {event.value for event in Event}
    assert set(words.ENDS) == {end.value for end in AttemptEnd}


def holds_in_sources() -> set[str]:
    """The templates that the engine and the scheduler make holds of, read from their syntax trees."""
    found = set()
    for path in [*(ROOT / "scheduler" / "engine").rglob("*.py"), ROOT / "scheduler" / "selectors.py"]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "hold" and len(node.args) > 1:
                found |= set(strings(node.args[1], tree))
    return found


def strings(node: ast.expr, tree: ast.Module) -> list[str]:
    """The string constants that an expression can be; of a name all that are assigned to it."""
    if isinstance(node, ast.Name):
        values = [
            each.value for each in ast.walk(tree)
            if isinstance(each, ast.Assign) and any(getattr(target, "id", "") == node.id for target in each.targets)
        ]  # fmt: skip
        return [text for value in values for text in strings(value, tree)]
    return [each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)]


def test_every_hold_of_the_engine_is_known_here() -> None:
    found = holds_in_sources()
    assert found - set(HOLDS) == set(), "add it to frontend/sentences.py and run `make messages`"
    assert set(HOLDS) - found == set(), "no longer said by anybody"


def test_every_sentence_is_said_in_chinese() -> None:
    with override("zh-hans"):
        for template in SENTENCES:
            facts = {name: 3 if ":g" in spec else "x" for name, spec in re.findall(r"\{(\w+)(:g)?\}", template)}
            assert re.search(r"[\u4e00-\u9fff]", words.sentence(template, facts)), template


def verdicts() -> list[Verdict]:
    """What the state machine says at the end of an attempt."""
    return [
        after_attempt(end, own_failures=own, infrastructure_in_a_row=row, retries=3, retry=Retry(), jitter=0.5)
        for end in AttemptEnd
        for own, row in ((1, 1), (9, 99))
    ]


def test_verdicts_are_recognized_and_translated() -> None:
    with override("zh-hans"):
        for verdict in verdicts():
            assert re.search(r"[\u4e00-\u9fff]", words.said(verdict.why)), verdict.why
        assert (
            words.said("it failed, retry 1 of 3: killed by signal 9") == "失败，第 1 次重试（共 3 次）: 被信号 9 终止"
        )
        assert words.said("somebody's own words") == "somebody's own words"


def test_facts_that_are_words_are_translated() -> None:
    template = "needs {need} {what}{parts}, {free} of {total} free"
    facts = {"need": 3, "what": "GPUs", "parts": "", "free": 1, "total": 4}
    assert words.sentence(template, facts) == "needs 3 GPUs, 1 of 4 free"
    with override("zh-hans"):
        assert words.sentence(template, facts) == "需要 3 张 GPU，4 张中有 1 张空闲"


@pytest.mark.parametrize(
    ("seconds", "en", "zh"),
    [(0, "now", "现在"), (5, "5 s ago", "5 秒前"), (130, "2 min ago", "2 分钟前"), (-7200, "in 2 h", "2 小时后"),
     (200_000, "2 d ago", "2 天前")],
)  # fmt: skip
def test_moments(seconds: float, en: str, zh: str) -> None:
    assert clock.ago(seconds) == en
    with override("zh-hans"):
        assert clock.ago(seconds) == zh


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, "0 s"), (59.6, "1 min"), (3725, "1 h 2 min"), (3605, "1 h"), (90_000, "1 d 1 h")]
)
def test_lengths_of_time(seconds: float, said: str) -> None:
    assert clock.span(seconds) == said


class Bare(HTMLParser):
    """Collects text, and attributes that people read, of a template whose tags have been taken out."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.silent += tag in ("script", "pre", "svg")
        spoken = ("title", "aria-label", "alt", "data-confirm", "data-why")
        self.found += [value for name, value in attrs if name in spoken and value and value.strip()]

    def handle_endtag(self, tag: str) -> None:
        self.silent -= tag in ("script", "pre", "svg")

    def handle_data(self, data: str) -> None:
        if not self.silent:
            self.found.append(data)


@pytest.mark.parametrize(
    "path", TEMPLATES, ids=lambda path: path.relative_to(ROOT / "frontend" / "templates").as_posix()
)
def test_no_template_has_a_bare_string(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"\{% comment %\}.*?\{% endcomment %\}", "", text, flags=re.DOTALL)
    text = re.sub(r"\{% blocktranslate.*?\{% endblocktranslate %\}", "", text, flags=re.DOTALL)
    parser = Bare()
    parser.feed(re.sub(r"\{%.*?%\}|\{\{.*?\}\}|\{#.*?#\}", "", text, flags=re.DOTALL))
    bare = {part.strip() for part in parser.found if re.search(r"[^\W\d_]{2,}", part)}
    assert {part for part in bare if not all(word in SAME_IN_ALL for word in re.split(r"[\s·]+", part) if word)} - {
        "/api/docs/"
    } == set()
