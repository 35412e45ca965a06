"""JupyterLab's last word when it starts: an extension of its server, named in jupyter/."""

from __future__ import annotations

import hmac
import os
from typing import Any

# what the server says of itself, of a kernel slow to start, and of one that a restart has ended
UNSAID = "To access the server", "is not trusted", "ping_timeout", "Nudge:", "Kernel does not exist"
# as a container listens, whose ports are published on localhost
EVERYWHERE = ("", "*", "0.0.0.0", "::")


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": __name__}]


def _load_jupyter_server_extension(server: Any) -> None:
    """Leave out lines that help no reader, and let the address survive a restart."""
    for handler in server.log.handlers:  # tornado's records reach them too
        handler.addFilter(lambda record: not any(one in record.getMessage() for one in UNSAID))
    provider = server.identity_provider
    if provider.token and provider.token_generated:
        # as secret as the cookies, and kept as long: an address is valid after a restart
        folder = server.root_dir.encode()
        provider.token = hmac.new(server.cookie_secret, folder, "sha256").hexdigest()[:48]


async def _start_jupyter_server_extension(server: Any) -> None:
    """Print the address once the server answers."""
    print("\n".join(closing_lines(server)), flush=True)


def closing_lines(server: Any) -> list[str]:
    """The lines to end with: for root, who can come in; for who came by ssh, the way here; and the
    address.
    """
    address = server.local_url if server.ip in EVERYWHERE else server.public_url
    way = ssh_tunnel_lines(server.port) if "SSH_CONNECTION" in os.environ else []
    return [*root_notice(server), *way, f"Ready: open {address}"]


def root_notice(server: Any) -> list[str]:
    """For root, a line that says where JupyterLab listens, and whether it asks for a token."""
    if os.geteuid():
        return []
    where = f"on {server.ip}" if server.ip else "on every address"
    if server.ip in ("localhost", "127.0.0.1", "::1"):
        where = "on this machine's loopback alone"
    token = "the token below" if server.identity_provider.token else "no token"
    return [f"JupyterLab runs as root, listens {where}, and asks for {token}."]


def ssh_tunnel_lines(port: int) -> list[str]:
    """Three lines that bring a port of this machine to the browser of a reader who came by ssh."""
    forward = f"-L {port}:localhost:{port}"
    return [
        "You are here by ssh. For the browser of your own machine, open a terminal there, and",
        f"repeat your ssh command with this port added, and leave it open:  ssh {forward} ...",
        "Then open the address below in that browser.",
    ]
