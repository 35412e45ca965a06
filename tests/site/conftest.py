"""A page of the site, in a browser."""

import pytest


@pytest.fixture
def page(served, new_context):
    """A page of which no request may leave this machine and no script fail."""
    context = new_context(viewport={"width": 1280, "height": 900})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    asked, errors = [], []
    context.on("request", lambda request: asked.append(request.url))
    context.on("weberror", lambda error: errors.append(str(error.error)))
    page = context.new_page()
    page.address, page.asked = served, asked
    yield page
    context.close()
    allowed = (served, "data:", "https://ui.perfetto.dev/")
    assert all(url.startswith(allowed) for url in asked) and errors == []
