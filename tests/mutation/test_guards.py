"""Every guard of the engine is missed when it is gone: with it disabled, a test that is named beside it fails.

A suite can run every line and still assert too little. So ``guards`` lists what the engine must not lose, each with
the piece of source that is the guard, what stands there when it is disabled, and the test that must fail then. Whoever
adds a rule adds its guard; whoever moves the code moves the piece. What has no test yet, or no longer any code, fails
here. ``runner`` says how the changed code is run.
"""

import json
import subprocess
import sys

import pytest

from tests.mutation.guard import Guard
from tests.mutation.guards import GUARDS
from tests.needs import ROOT


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_guard_is_where_the_list_says(guard: Guard) -> None:
    source = (ROOT / guard.file).read_text(encoding="utf-8")
    assert source.count(guard.code) == 1, f"{guard.code!r} does not stand exactly once in {guard.file}"
    changed = source.replace(guard.code, guard.instead)
    assert changed != source
    compile(changed, guard.file, "exec", dont_inherit=True)


def test_guards_have_names_of_their_own() -> None:
    assert len({guard.name for guard in GUARDS}) == len(GUARDS)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_every_guard_is_missed_when_it_is_gone() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.mutation.runner"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )
    assert run.returncode == 0, run.stderr
    verdicts = json.loads(run.stdout)
    assert verdicts.pop("") == "passed", "the tests that guards name do not all pass as things are"
    assert {name: verdict for name, verdict in verdicts.items() if verdict != "noticed"} == {}
    assert verdicts.keys() == {guard.name for guard in GUARDS}
