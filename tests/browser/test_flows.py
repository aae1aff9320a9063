"""What people do: sign in, submit, watch, filter, cancel, switch; without a reload where none is needed."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from django.core.cache import cache
from playwright.sync_api import expect

from frontend import live
from jobs.models import Job
from jobs.submission import submit
from scheduler.targets import target_for
from teams.models import User
from tests.browser.demo import PASSWORD
from tests.browser.harness import NARROW, Site, Visit, committed

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.timeout(120)]
Open = Callable[..., Visit]


def publish() -> None:
    """What beat does each second."""
    committed(live.publish, datetime.now(UTC))


def submitted(site: Site, name: str) -> Job:
    """A job of ada's that waits for a model that there is not."""

    def make() -> Job:
        user, team = site.demo.member, site.demo.teams["vision"]
        body = {"name": name, "command": ["true"], "model": "B200"}
        return submit(user=user, team=team, target=target_for(user=user, team=team), body=body).job

    return committed(make)


def test_sign_in_with_a_one_time_password_and_out_again(site: Site, visit: Open) -> None:
    def newcomer() -> None:
        cache.clear()
        User.objects.create_user("newcomer", password=PASSWORD, must_change_password=True)

    committed(newcomer)
    window = visit(None)
    page = window.go("/jobs/")
    page.get_by_label("Username").or_(page.get_by_label("Login")).first.fill("newcomer")
    page.get_by_label("Password", exact=True).fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("You signed in with a one-time password")).to_be_visible()
    page.get_by_label("Current Password").fill(PASSWORD)
    page.get_by_label("New Password", exact=True).fill("a brand new one 7")
    page.get_by_label("New Password (again)").fill("a brand new one 7")
    page.get_by_role("button", name="Change password").click()
    page.wait_for_load_state()
    page = window.go("/")
    expect(page.get_by_role("heading", name="Dashboard")).to_be_visible()
    page.get_by_role("button", name="newcomer").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(re.compile("/accounts/login/"))


def test_submit_by_the_form_with_a_mistake_first(site: Site, visit: Open) -> None:
    page = visit("ada").go("/submit/")
    page.get_by_label("Name").fill("by-hand")
    page.get_by_label("Command").fill("echo 'open")
    page.get_by_label("Team").select_option("vision")
    page.get_by_role("button", name="Submit").click()
    expect(page.locator("#e-command")).to_have_text("a quotation mark is not closed")
    expect(page.get_by_label("Command")).to_be_focused()
    page.get_by_label("Command").fill("echo 'closed'")
    page.get_by_label("GPU model").fill("B200")
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_text("by-hand was submitted.")).to_be_visible()
    expect(page.locator("#sentence")).to_contain_text("Waiting")
    page.get_by_role("link", name="Copy to form").click()
    expect(page.get_by_label("Command")).to_have_value("echo closed")


def test_form_and_yaml_stay_in_step(visit: Open) -> None:
    page = visit("ada").go("/submit/")
    page.get_by_label("Name").fill("both-ways")
    page.get_by_label("Command").fill("python train.py")
    page.get_by_role("tab", name="YAML").click()
    box = page.get_by_label("The job as YAML")
    expect(box).to_have_value(re.compile("name: both-ways"))
    box.fill(box.input_value().replace("gpus: 1", "gpus: 6") + "topology: {require: rack}\n")
    page.get_by_role("tab", name="Form").click()
    expect(page.get_by_label("GPUs of each replica")).to_have_value("6")
    expect(page.locator("#f-extra")).to_have_value(re.compile("require: rack"))


def test_a_list_is_live_without_a_reload(site: Site, visit: Open) -> None:
    page = visit("ada").go("/jobs/")
    page.evaluate("window.mark = 1")
    submitted(site, "arrives-by-itself")
    publish()
    expect(page.get_by_role("link", name="arrives-by-itself")).to_be_visible(timeout=8_000)
    assert page.evaluate("window.mark") == 1


def test_a_job_is_live_and_others_news_leave_it_alone(site: Site, visit: Open) -> None:
    job = submitted(site, "to-be-cancelled")
    page = visit("ada").go(f"/jobs/{job.key}/")
    page.evaluate("window.mark = 1")
    page.get_by_role("button", name="Cancel", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).not_to_be_visible()
    other = visit("grace").go(f"/jobs/{job.key}/")
    other.get_by_role("button", name="Cancel", exact=True).click()
    other.get_by_role("dialog").get_by_role("button", name="Cancel", exact=True).click()
    expect(other.locator("#sentence")).to_contain_text("Cancelled: cancelled by grace")
    publish()
    expect(page.locator("#sentence")).to_contain_text("Cancelled: cancelled by grace", timeout=8_000)
    assert page.evaluate("window.mark") == 1


def test_after_a_break_the_page_catches_up(site: Site, visit: Open) -> None:
    window = visit("ada")
    page = window.go("/jobs/")
    window.context.set_offline(True)
    page.evaluate("document.querySelector('[data-live-sign]')")
    submitted(site, "missed-at-first")
    publish()
    page.wait_for_timeout(500)
    assert page.get_by_role("link", name="missed-at-first").count() in (0, 1)
    window.context.set_offline(False)
    publish()
    expect(page.get_by_role("link", name="missed-at-first")).to_be_visible(timeout=20_000)


def test_a_filter_applies_itself_and_is_in_the_address(visit: Open) -> None:
    page = visit("ada").go("/jobs/")
    page.get_by_label("Name or key").fill("pretrain-7b")
    expect(page.locator("table.jobs tbody tr")).to_have_count(4)
    expect(page).to_have_url(re.compile(r"text=pretrain-7b"))
    page.reload()
    expect(page.locator("table.jobs tbody tr")).to_have_count(4)
    page.get_by_role("link", name=re.compile("^running")).click()
    expect(page).to_have_url(re.compile("state=running"))


def test_many_are_cancelled_from_the_list(site: Site, visit: Open) -> None:
    for number in range(3):
        submitted(site, f"bulk-{number}")
    page = visit("ada").go("/jobs/?text=bulk-")
    page.get_by_label("Tick all").check()
    expect(page.get_by_text("3 ticked")).to_be_visible()
    page.get_by_role("button", name="Cancel them").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel them").click()
    expect(page.get_by_text("3 jobs are being cancelled.")).to_be_visible()
    expect(page.locator("table.jobs .state-badge")).to_have_text(["cancelled"] * 3)


def test_language_and_theme_are_kept(visit: Open) -> None:
    window = visit("ada")
    page = window.go("/queue/")
    page.get_by_role("button", name="简体中文").click()
    expect(page.get_by_role("heading", name="队列")).to_be_visible()
    page.get_by_role("button", name="深色").click()
    expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
    page = window.go("/jobs/")
    expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
    expect(page.get_by_role("heading", name="作业")).to_be_visible()


def test_the_menu_of_a_phone(visit: Open) -> None:
    page = visit("ada", size=NARROW).go("/")
    expect(page.get_by_role("link", name="Queue", exact=True)).not_to_be_visible()
    page.get_by_role("button", name="Open or close the menu").click()
    page.get_by_role("link", name="Queue", exact=True).click()
    expect(page.get_by_role("heading", name="Queue")).to_be_visible()


def test_by_keyboard_alone(visit: Open) -> None:
    page = visit("ada").go("/jobs/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Name or key")).to_be_focused()


def test_a_token_is_shown_once(visit: Open) -> None:
    page = visit("ada").go("/tokens/")
    page.get_by_label("What it is for").fill("ci")
    page.get_by_role("button", name="Make token").click()
    expect(page.get_by_label("The new token")).to_have_value(re.compile(r"^rota_\w+\.\S{40,}"))
    row = page.get_by_role("row").filter(has_text="ci")
    row.get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(row).to_contain_text("revoked")
    page.reload()
    expect(page.get_by_label("The new token")).not_to_be_visible()


def test_the_map_leads_to_a_node(visit: Open) -> None:
    page = visit("ada").go("/clusters/aurora/")
    canvas = page.locator("[data-gpu-map] canvas")
    canvas.hover(position={"x": 6, "y": 6})
    expect(page.locator(".map-tip")).to_contain_text("gpu-001 · GPU 0 · ")
    canvas.click(position={"x": 6, "y": 6})
    expect(page.get_by_role("heading", name="gpu-001")).to_be_visible()
