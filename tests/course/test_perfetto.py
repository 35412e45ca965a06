"""The Perfetto button where there is no page: test_site_in_a_browser.py clicks one."""

import json

import pytest

from course import perfetto


@pytest.fixture
def serve(tmp_path, monkeypatch):
    """Let a Jupyter server run that serves a folder under a base URL."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("JPY_PARENT_PID", "17")
    (tmp_path / "runtime").mkdir()

    def serve(folder, base_url="/"):
        about = json.dumps({"root_dir": str(folder), "base_url": base_url})
        (tmp_path / "runtime" / "jpserver-17.json").write_text(about)

    return serve


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "course" / "my traces" / "eager<1>.json.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"trace" * 1000)
    return path


def test_the_button_knows_where_the_server_has_the_file(serve, trace):
    serve(trace.parent.parent, "/user/me/")
    shown = perfetto.perfetto_button(trace).data
    assert 'data-trace="/user/me/files/my%20traces/eager%3C1%3E.json.gz"' in shown
    assert 'data-ui="https://ui.perfetto.dev"' in shown and "eager<1>" not in shown
    assert "(5 kB)" in shown


@pytest.mark.parametrize("server", ["none", "another folder", "damaged"])
def test_without_a_server_of_the_file_a_sentence_says_what_to_do(serve, trace, tmp_path, server):
    if server == "another folder":
        serve(tmp_path / "elsewhere")
    elif server == "damaged":
        (tmp_path / "runtime" / "jpserver-17.json").write_text("{")
    shown = perfetto.perfetto_button(trace).data
    assert "<button" not in shown and "drag the file onto that page" in shown
    assert "eager&lt;1&gt;.json.gz" in shown
