"""The last lines of JupyterLab's start: the address, and the way to it for readers by ssh."""

from types import SimpleNamespace

import pytest

from course import lab_address


@pytest.fixture(autouse=True)
def user(monkeypatch):
    monkeypatch.setattr(lab_address.os, "geteuid", lambda: 1000)


def test_readers_who_came_by_ssh_are_told_the_way_to_the_port(monkeypatch):
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.2 50000 192.0.2.1 22")
    assert lab_address.closing_lines(SERVER)[:-1] == lab_address.ssh_tunnel_lines(9999)
    assert len(lab_address.ssh_tunnel_lines(9999)) == 3
    assert "ssh -L 9999:localhost:9999" in lab_address.ssh_tunnel_lines(9999)[1]


SERVER = SimpleNamespace(
    ip="localhost", port=9999, public_url="http://localhost:9999/", local_url="http://127.0.0.1/"
)


@pytest.mark.parametrize(
    ("ip", "address"), [("localhost", SERVER.public_url), ("0.0.0.0", SERVER.local_url)]
)
def test_the_last_line_is_the_address_that_a_browser_here_can_open(ip, address):
    server = SimpleNamespace(**{**vars(SERVER), "ip": ip})
    assert lab_address.closing_lines(server) == [f"Ready: open {address}"]


def test_the_token_survives_a_restart_and_belongs_to_the_folder():
    tokens = []
    for folder in ("/course", "/course", "/other"):
        provider = SimpleNamespace(token="new at each start", token_generated=True)
        log = SimpleNamespace(handlers=[])
        server = {"log": log, "identity_provider": provider, "cookie_secret": b"kept"}
        lab_address._load_jupyter_server_extension(SimpleNamespace(root_dir=folder, **server))
        tokens.append(provider.token)
    assert tokens[0] == tokens[1] != tokens[2] and len(tokens[0]) == 48


@pytest.mark.parametrize(
    ("ip", "token", "said"),
    [
        ("localhost", "abc", "listens on this machine's loopback alone, and asks for the token"),
        ("0.0.0.0", "abc", "listens on 0.0.0.0, and asks for the token below."),
        ("", "", "listens on every address, and asks for no token."),
    ],
)
def test_root_is_told_who_can_come_in(monkeypatch, ip, token, said):
    monkeypatch.setattr(lab_address.os, "geteuid", lambda: 0)
    server = {**vars(SERVER), "ip": ip, "identity_provider": SimpleNamespace(token=token)}
    line, address = lab_address.closing_lines(SimpleNamespace(**server))
    assert line.startswith("JupyterLab runs as root, ") and said in line
    assert address.startswith("Ready: open ")
