"""The page that shows and tries out the API: it works under our strict content security policy."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.browser.harness import Visit

pytestmark = pytest.mark.timeout(180)


def test_the_api_can_be_read_and_tried_out(visit: Callable[..., Visit]) -> None:
    window = visit("admin")
    page = window.page
    page.goto(f"{window.site.url}/api/docs/")
    page.wait_for_selector(".opblock-tag-section")
    page.wait_for_function("document.querySelectorAll('.opblock').length > 30")
    # With the browser's session, and its protection against forged forms.
    block = page.locator("#operations-tokens-tokens_create")
    block.locator(".opblock-summary-control").click()
    block.locator(".try-out__btn").click()
    block.locator("textarea").fill('{"name": "from the page", "scopes": ["read"]}')
    block.locator(".execute").click()
    block.locator(".live-responses-table .response-col_status").filter(has_text="201").wait_for()
    assert window.wrong == []
