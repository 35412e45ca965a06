"""The set-up with uv itself: which build of torch it
takes, with PyTorch's own index in reach and out of reach.

Nothing here leaves this machine, and the wheels hold a line each. The default index is named by
uv's own setting; in the place of PyTorch's, whose address uv knows by itself, a proxy answers.
"""

import functools
import os
import shutil
import ssl
import subprocess
import sys
import threading
from importlib.util import find_spec

import pytest

from course.paths import ROOT
from tests.support import wheels
from tests.support.project import PINS, SET_UP, clean_environment
from tests.support.server import Quiet, serving

pytestmark = [
    pytest.mark.weekly,
    pytest.mark.skipif(find_spec("uv") is None, reason="needs uv, which `make test` installs"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl"),
]

SETTINGS = """
[build-system]
requires = []
build-backend = "wheels"
backend-path = ["."]
[project]
name = "cuda-graphs-course"
version = "0.1.0"
dependencies = ["torch"]
"""


@pytest.fixture
def checkout(tmp_path):
    """The Makefile and the set-up of a course that needs torch alone; pip finds uv in a folder."""
    folder = tmp_path / "checkout"
    (folder / "course").mkdir(parents=True)
    for name in ("Makefile", *SET_UP):
        shutil.copy(ROOT / name, folder / name)
    shutil.copy(wheels.__file__, folder / "wheels.py")
    (folder / "pyproject.toml").write_text(SETTINGS)
    pins = [f"{name}=={PINS[name]}\n" for name in ("torch", "uv")]
    (folder / "constraints.txt").write_text("".join(pins))
    import uv

    program = uv.find_uv_bin()
    run = f"import os, sys\nos.execv({program!r}, [{program!r}, *sys.argv[1:]])\n"
    wheels.wheel(tmp_path / "wheels", "uv", PINS["uv"], **{"uv.__init__": "", "uv.__main__": run})
    return folder


class Certificates:
    """Certificates for any host, signed by an authority that exists for one test."""

    def __init__(self, folder):
        self.folder, self.lock = folder, threading.Lock()
        folder.mkdir()
        self.authority = self._sign("authority", "-addext", "keyUsage=keyCertSign")

    def context(self, host):
        """What a server needs to answer as host."""
        signed = ["-CA", self.authority, "-CAkey", self.authority.with_suffix(".key")]
        own = [
            "-addext",
            f"subjectAltName=DNS:{host}",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with self.lock:  # uv opens several connections at once
            certificate = self._sign(host, *signed, *own)
            context.load_cert_chain(certificate, certificate.with_suffix(".key"))
        return context

    def _sign(self, name, *options):
        certificate = self.folder / f"{name}.pem"
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout"]
        files = [certificate.with_suffix(".key"), "-out", certificate]
        command = ["openssl", "req", "-x509", "-subj", f"/CN={name}", *key, *files, *options]
        subprocess.run(command, check=True, capture_output=True)
        return certificate


class InItsPlace(Quiet):
    """A proxy that answers for every host from a folder of its own."""

    def __init__(self, *arguments, certificates, **options):
        self.certificates = certificates
        super().__init__(*arguments, **options)

    def do_CONNECT(self):  # http.server calls it so
        self.send_response(200)
        self.end_headers()
        context = self.certificates.context(self.path.partition(":")[0])
        with context.wrap_socket(self.connection, server_side=True) as connection:
            Quiet(connection, self.client_address, self.server, directory=self.directory)
        self.close_connection = True


@pytest.fixture
def indexes(tmp_path):
    """Both indexes with torch's builds, whose module says
    which it is; gives the environment that leads to them.
    """
    torch, own = PINS["torch"], tmp_path / "own"
    wheels.wheel(tmp_path / "default/simple/torch", "torch", torch, torch="build = 'default'\n")
    for build in ("cpu", "cu130"):
        wheels.wheel(
            own / f"whl/{build}/torch", "torch", f"{torch}+{build}", torch=f"build = '{build}'\n"
        )
    certificates = Certificates(tmp_path / "certificates")
    proxy = functools.partial(InItsPlace, directory=own, certificates=certificates)
    with (
        serving(functools.partial(Quiet, directory=tmp_path / "default")) as default,
        serving(proxy) as for_others,
    ):
        yield {
            "UV_DEFAULT_INDEX": f"{default}/simple",
            "HTTPS_PROXY": for_others,
            "SSL_CERT_FILE": str(certificates.authority),
        }


@pytest.mark.parametrize(
    ("asked", "driver", "reached", "build"),
    [
        ("CPU=1", False, True, "cpu"),
        ("CPU=", True, True, "cu130"),
        ("CPU=1", False, False, "default"),
    ],
)
def test_torchs_build_suits_the_machine_and_comes_from_the_index_in_reach(
    checkout, indexes, tmp_path, asked, driver, reached, build
):
    environment = {
        name: value for name, value in clean_environment().items() if "proxy" not in name.lower()
    }
    environment |= indexes | {
        "UV_CACHE_DIR": str(tmp_path / "cache"),
        "UV_HTTP_RETRIES": "0",
        "NO_PROXY": "localhost",
    }
    environment |= {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path / "wheels"),
    }
    if driver:
        (tmp_path / "nvidia-smi").write_text("#!/bin/sh\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
        environment |= {
            "PATH": f"{tmp_path}:{environment['PATH']}",
            "UV_CUDA_DRIVER_VERSION": "580.159",
        }
    if not reached:
        environment["HTTPS_PROXY"] = "http://localhost:1"  # nobody listens there
    command = ["make", ".venv/ready", f"PYTHON={sys.executable}", asked]
    run = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    ask = [checkout / ".venv/bin/python", "-c", "import torch; print(torch.build)"]
    assert subprocess.run(ask, capture_output=True, text=True).stdout == f"{build}\n"
    assert run.stdout.count("PyTorch's own index did not help (") == (not reached)
    assert run.stderr == ""
