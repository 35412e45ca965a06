import atexit
import functools
import gc
import gzip
import http.server
import json
import os
import shutil
import threading

import pytest
import torch
from filelock import FileLock
from hypothesis import HealthCheck, settings
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from course.recordings.recording import find_recording
from docs.played import played
from helpers.trace import read_trace
from tests.support.machine import PATIENCE
from tests.support.notebooks import RECORDED
from tests.support.processes import run_python

settings.register_profile("course", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("course")

BROWSERS = ("chromium", "chromium-browser", "google-chrome")

# the workers share the cores: threads of each of them, and of the processes that they start, would
# only wait
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"

# torch.compile empties the processor's cache to time its guards, for 40 ms each time: nobody reads
# that here
torch._C._dynamo.guards.profile_guard_manager = lambda *_: 0.0


@pytest.hookimpl(optionalhook=True)  # `-p no:xdist` runs too
def pytest_xdist_auto_num_workers():
    """One worker more than cores, because kernels and browsers are waited for; but one where
    lessons run live: two would time each other's work.
    """
    return 1 if torch.cuda.is_available() else len(os.sched_getaffinity(0)) + 1


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Let fixtures see at their end whether the test has failed: a screenshot helps then."""
    report = yield
    item.stash["failed"] = item.stash.get("failed", False) or report.failed
    return report


@pytest.fixture(scope="module")
def chromium():
    """Chromium, driven by Playwright; the test is skipped where there is none."""
    playwright = pytest.importorskip("playwright.sync_api")  # the GPU machine has none
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip("finds no Chromium (apt-get install chromium)")
    quiet = (
        "--disable-gpu --disable-quic --no-first-run --disable-background-networking "
        "--disable-component-update"
    )
    # of each window: two pages of its address bar, which nobody sees; a process in reserve; what
    # lies far below, drawn
    spare = "WebUIOmniboxPopup,WebUIOmniboxAimPopup,WebUIOmniboxFullPopup,SpareRendererForSitePerProcess"
    with playwright.sync_playwright() as driver:
        # Chromium's own sandbox does not start for root, as in containers
        arguments = ["--no-sandbox", "--disable-sync", *quiet.split()]
        arguments += ["--force-gpu-mem-available-mb=16", f"--disable-features={spare}"]
        patience = PATIENCE * 1000
        launched = driver.chromium.launch(executable_path=program, args=arguments, timeout=patience)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def new_context(chromium):
    """A new profile of Chromium, whose pages wait as long as all tests do; takes its options."""

    def new_context(**options):
        context = chromium.new_context(**options)
        context.set_default_timeout(PATIENCE * 1000)
        return context

    return new_context


@pytest.fixture(scope="session")
def played_lessons(request):
    """The recorded lessons that this run's tests ask for, all if a test is not about one lesson,
    with what their cells show; the first worker to ask plays them.
    """
    asking = [item for item in request.session.items if "played_lessons" in item.fixturenames]
    parameters = [item.callspec.params if hasattr(item, "callspec") else {} for item in asking]
    asked = {each.get("path") for each in parameters}
    return played(RECORDED if None in asked else [path for path in RECORDED if path in asked])


@pytest.fixture(scope="session")
def site(tmp_path_factory, worker_id):
    """The site as `make site` builds it, warnings are errors; the workers share one, which the
    first to ask builds.
    """
    pages = pytest.importorskip("docs.pages", reason="the site needs what `make test` installs")
    folder = tmp_path_factory.getbasetemp()
    folder = folder if worker_id == "master" else folder.parent
    html = folder / "html"
    with FileLock(folder / "site.lock"):
        if not html.exists():
            source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("html")
            options = ["--quiet", "--fail-on-warning", "--keep-going", "-c", "docs", source, built]
            pages.write_pages(source)
            made = run_python("-m", "sphinx", *options)
            assert made.returncode == 0, made.stderr[-3000:]
            built.rename(html)
    return html


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, and logs nothing."""

    def log_message(self, *_):
        pass


@pytest.fixture
def served(site):
    """The site's address on this machine."""
    handler = functools.partial(Quiet, directory=site)
    with http.server.ThreadingHTTPServer(("localhost", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module", autouse=True)
def young_process():
    """Only what these tests make is looked at where code asks what is alive: a test run has 300,000
    objects more.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def shell():
    """IPython, as fresh as in a new kernel, but for its history on the disk and its long tracebacks
    (0.1 s each).
    """
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    shell.InteractiveTB.set_mode("Minimal")
    yield shell
    # which would keep it, and all that its cells made, to the end
    atexit.unregister(shell.atexit_operations)
    InteractiveShell.clear_instance()


@pytest.fixture(params=["eager", "whole_step_graph"])
def recorded_trace(request):
    return find_recording("start_here").trace(request.param)


@pytest.fixture
def write_trace(tmp_path):
    """Write events, made by those of tests/support/traces.py, as a Kineto trace; return its path."""

    def write(*events, name="trace.json"):
        content = json.dumps({"schemaVersion": 1, "traceEvents": list(events)}).encode()
        path = tmp_path / name
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write


@pytest.fixture
def read_events(write_trace):
    """Write events as a Kineto trace; return the trace that is read from it."""
    return lambda *events, **options: read_trace(write_trace(*events, **options))
