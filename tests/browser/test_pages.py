"""Every page in Chromium: both languages, light and dark, wide and narrow; nothing broken, nothing unreadable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.browser.harness import NARROW, WIDE, Site, Visit

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.timeout(300)]
AXE = Axe()
RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}}
LOOKS = [("en", "light", "wide"), ("zh-hans", "dark", "wide"), ("en", "dark", "narrow"), ("zh-hans", "light", "narrow")]


def pages_of(site: Site) -> dict[str, str]:
    """Every page by name, for an admin."""
    jobs = site.demo.jobs
    return {
        "dashboard": "/", "dashboard-one": "/?cluster=aurora", "jobs": "/jobs/", "jobs-empty": "/jobs/?text=zzz",
        "queue": "/queue/", "submit": "/submit/", "submit-copy": f"/submit/?copy={jobs['segment-3'].key}",
        "job-waiting": f"/jobs/{jobs['pretrain-70b'].key}/", "job-running": f"/jobs/{jobs['pretrain-7b-1'].key}/",
        "job-held": f"/jobs/{jobs['waits-for-data'].key}/", "job-ended": f"/jobs/{jobs['segment-3'].key}/",
        "job-failed": f"/jobs/{jobs['grasp-policy-1'].key}/", "job-shared": f"/jobs/{jobs['notebook-1'].key}/",
        "clusters": "/clusters/", "cluster": "/clusters/aurora/", "cluster-local": "/clusters/local/",
        "node": "/clusters/aurora/nodes/gpu-052/", "node-cordoned": "/clusters/aurora/nodes/gpu-037/",
        "nodes": "/nodes/", "teams": "/teams/", "team": "/teams/vision/", "events": "/events/", "profile": "/profile/",
        "tokens": "/tokens/", "help": "/help/", "password": "/accounts/password/change/", "mfa": "/accounts/2fa/",
    }  # fmt: skip


def problems(visit: Visit, *, axe: bool = True) -> list[str]:
    """What is wrong with the page that is open; ``axe`` takes most of the time."""
    page = visit.page
    found, visit.wrong = list(visit.wrong), []
    width = page.evaluate("document.documentElement.clientWidth")
    wider = page.evaluate("document.documentElement.scrollWidth")
    if wider > width:
        found.append(f"{wider - width} px too wide")
    if not axe:
        return found
    found += [
        f"axe {each['id']} ({each['impact']}): {each['nodes'][0]['html'][:160]}"
        for each in AXE.run(page, options=RULES).response["violations"]
        if each["impact"] in ("serious", "critical")
    ]
    return found


@pytest.mark.parametrize("look", LOOKS, ids="-".join)
def test_every_page_looks_right(site: Site, visit: Callable[..., Visit], look: tuple[str, str, str]) -> None:
    language, theme, size = look
    window = visit("admin", language=language, theme=theme, size=WIDE if size == "wide" else NARROW)
    wrong: dict[str, list[str]] = {}
    for name, path in pages_of(site).items():
        page = window.go(path)
        if found := problems(window, axe=look != LOOKS[2]):
            wrong[name] = found
        assert page.locator("html").get_attribute("lang") == language
        assert page.locator("html").get_attribute("data-bs-theme") == theme
        assert page.title().endswith("Rota")
    assert not wrong, "\n".join(f"{name}: {line}" for name, lines in wrong.items() for line in lines)


@pytest.mark.parametrize(
    ("path", "table"), [("/jobs/", "table.jobs"), ("/queue/", "table.queue"), ("/teams/vision/", "table.jobs")]
)
def test_lists_do_not_cut_who_and_where(visit: Callable[..., Visit], path: str, table: str) -> None:
    """Team, user, cluster and times are whole; a reason may be longer than its place, a name is in its tooltip."""
    page = visit("admin", size=WIDE).go(path)
    cut = """(cells) => cells.filter((cell) => cell.offsetParent && cell.scrollWidth > cell.clientWidth + 1)
        .map((cell) => cell.textContent.trim())"""
    cells = page.locator(f"{table} td:not(.job-cell, .state-cell, .why-cell)")
    assert cells.count() > 10
    assert cells.evaluate_all(cut) == []


@pytest.mark.parametrize("look", LOOKS[:2], ids="-".join)
def test_the_doors_look_right(site: Site, visit: Callable[..., Visit], look: tuple[str, str, str]) -> None:
    language, theme, _ = look
    window = visit(None, language=language, theme=theme)
    window.go("/accounts/login/")
    assert problems(window) == []
    window.go("/nowhere/")
    window.wrong = [line for line in window.wrong if "404" not in line]
    assert problems(window) == []


def test_no_page_flashes_in_the_wrong_theme(visit: Callable[..., Visit]) -> None:
    window = visit("ada", theme="dark")
    window.page.add_init_script(
        "new MutationObserver(() => (window.seen ??= []).push(document.documentElement.dataset.bsTheme))"
        ".observe(document, { childList: true, subtree: true });"
    )
    page = window.go("/")
    assert set(page.evaluate("window.seen.slice(window.seen.indexOf('dark'))")) == {"dark"}
    assert page.evaluate("performance.getEntriesByType('paint')[0].startTime > 0")


def test_the_map_is_painted_soon_and_patched_quickly(visit: Callable[..., Visit]) -> None:
    page = visit("ada").go("/clusters/aurora/")
    assert page.locator("[data-gpu-map]").get_attribute("data-painted") == "512"
    took: Any = page.evaluate(
        """() => {
            const map = JSON.parse(document.getElementById('map-data').textContent);
            const frame = new DataView(new ArrayBuffer(9 + 300 * 5));
            frame.setUint32(0, map.cluster, true); frame.setUint8(8, 1);
            for (let n = 0; n < 300; n += 1) { frame.setUint32(9 + n * 5, n, true); frame.setUint8(13 + n * 5, 4); }
            const began = performance.now();
            document.dispatchEvent(new CustomEvent('rota:map', { detail: frame.buffer }));
            return [performance.now() - began, document.querySelector('[data-map-count="4"]').textContent];
        }"""
    )
    assert took[0] < 50
    assert int(took[1]) >= 300
