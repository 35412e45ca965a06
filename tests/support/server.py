"""Pages on a port of this machine."""

import http.server
import threading
from contextlib import contextmanager


@contextmanager
def serving(handler):
    """Serve pages on a port of this machine, by a handler of http.server; gives the address."""
    with http.server.ThreadingHTTPServer(("localhost", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, and logs nothing."""

    def log_message(self, *_):
        pass
