"""make lab's JupyterLab in a folder of its own."""

import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import suppress

from course.paths import ROOT
from tests.support.machine import PATIENCE, wait_for
from tests.support.project import PACKAGES


class Lab:
    """A copy of the course in folder, and the server that `make lab` starts there."""

    def __init__(self, folder, port=0):
        shutil.copy(ROOT / "pyproject.toml", folder)  # its lock is held while lessons are copied
        for part in (*PACKAGES, "docs", "jupyter", "notebooks", "traces"):
            ignored = shutil.ignore_patterns("__pycache__", "local", "_build")
            shutil.copytree(ROOT / part, folder / part, ignore=ignored)
        self.folder, self.runtime = folder, folder / "runtime"
        own = {f"JUPYTER_{place.upper()}_DIR": place for place in ("runtime", "config", "data")}
        own |= {"IPYTHONDIR": "ipython", "PYTHONPATH": "."}
        self.log = folder / "server.log"
        self.process = subprocess.Popen(
            # 0 is a free port; else JupyterLab tries one and takes it only later, so two servers
            # would both choose 8888
            [sys.executable, "-m", "course.commands.lab", "--no-browser", f"--port={port}"],
            cwd=folder,
            env=os.environ | {name: str(folder / place) for name, place in own.items()},
            stdout=self.log.open("w"),
            stderr=subprocess.STDOUT,
        )
        wait_for(self._running)

    def _running(self):
        """Whether the server answers to the token that it wrote; it writes before it listens."""
        assert self.process.poll() is None, self.log.read_text()
        try:
            file = self.runtime / f"jpserver-{self.process.pid}.json"
            self.about = json.loads(file.read_text())
            return self.request("api/status")
        except (OSError, ValueError):  # not there yet, or half written, or not listening yet
            return None

    def stop(self):
        """End the server: by force where a page's last request was still under way, whose thread
        then never ends.
        """
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(60)
        self.process.kill()  # no process, if it has ended
        self.process.wait(PATIENCE)

    def address(self, path=""):
        return f"http://localhost:{self.about['port']}/{path}?token={self.about['token']}"

    def request(self, path, method="GET", **content):
        """Ask the server's API; None for what it cannot answer just now."""
        data = json.dumps(content).encode() if content else None
        asked = urllib.request.Request(self.address(path), data, method=method)
        try:
            with urllib.request.urlopen(asked) as answer:
                return json.loads(answer.read() or "null")
        except urllib.error.HTTPError:
            return None

    def kernel(self, path):
        """The id of the notebook's kernel once it is idle and a page is connected to it."""

        def connected_kernel():
            for session in self.request("api/sessions") or []:
                kernel = session["kernel"]
                ready = kernel["execution_state"] == "idle" and kernel["connections"] >= 1
                if session["path"] == path and ready:
                    return kernel["id"]
            return None

        return wait_for(connected_kernel)
