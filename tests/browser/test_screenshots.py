"""The pictures of the documentation: made anew by `make screenshots`, looked for in every other run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser.harness import NARROW, WIDE, Site, Visit
from tests.needs import ROOT

SHOTS = ROOT / "docs" / "screenshots"
INTO = os.environ.get("ROTA_SCREENSHOTS")
PAGES = {
    "dashboard": ("/", "en", "light", "wide"),
    "dashboard-dark": ("/", "zh-hans", "dark", "wide"),
    "dashboard-phone": ("/", "en", "light", "narrow"),
    "jobs": ("/jobs/", "en", "light", "wide"),
    "queue": ("/queue/", "en", "light", "wide"),
    "job-waiting": ("/jobs/{pretrain-70b}/", "en", "light", "wide"),
    "job-running": ("/jobs/{pretrain-7b-1}/", "en", "dark", "wide"),
    "job-phone": ("/jobs/{pretrain-70b}/", "zh-hans", "light", "narrow"),
    "submit": ("/submit/", "en", "light", "wide"),
    "clusters": ("/clusters/", "en", "light", "wide"),
    "cluster": ("/clusters/aurora/", "en", "dark", "wide"),
    "cluster-local": ("/clusters/local/", "en", "light", "wide"),
    "node": ("/clusters/aurora/nodes/gpu-052/", "en", "light", "wide"),
    "nodes": ("/nodes/", "en", "light", "wide"),
    "teams": ("/teams/", "en", "light", "wide"),
    "team": ("/teams/vision/", "en", "light", "wide"),
    "events": ("/events/", "zh-hans", "light", "wide"),
    "tokens": ("/tokens/", "en", "light", "wide"),
    "profile": ("/profile/", "en", "light", "wide"),
    "help": ("/help/", "zh-hans", "light", "wide"),
    "sign-in": ("/accounts/login/", "en", "light", "wide"),
}


@pytest.mark.skipif(INTO is not None, reason="they are being made")
def test_the_pictures_are_there_and_shown() -> None:
    page = (ROOT / "docs" / "reference" / "pages.md").read_text(encoding="utf-8")
    for name in PAGES:
        assert (SHOTS / f"{name}.png").stat().st_size > 5_000, "run `make screenshots`"
        assert f"../screenshots/{name}.png" in page
    assert {path.stem for path in SHOTS.glob("*.png")} == set(PAGES)


if INTO is not None:

    @pytest.mark.timeout(300)
    def test_make_them(site: Site, visit: Callable[..., Visit]) -> None:
        folder = ROOT / str(INTO)
        folder.mkdir(exist_ok=True)
        for name, (path, language, theme, size) in PAGES.items():
            user = None if name == "sign-in" else "admin"
            viewport = WIDE if size == "wide" else NARROW
            window = visit(user, language=language, theme=theme, size=viewport)
            page = window.go(path.format_map({job.name: job.key for job in site.demo.jobs.values()}))
            page.wait_for_timeout(400)
            page.screenshot(path=Path(folder) / f"{name}.png")
            assert window.wrong == []
