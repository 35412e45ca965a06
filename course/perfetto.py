"""Open a trace in Perfetto from a notebook.

The button fetches the trace from the Jupyter server when it is clicked, opens Perfetto's page, and
hands the bytes over by its PING and PONG
(perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui). They go from the browser to the
browser: to no server, and into no saved notebook.
"""

import json
import os
from html import escape
from pathlib import Path
from urllib.parse import quote

from IPython.display import HTML
from jupyter_core.paths import jupyter_runtime_dir

from course.paths import short

PERFETTO = "https://ui.perfetto.dev"

# in an onclick, document.URL hides the name URL: hence window.URL
OPEN = """
(async button => {
  const {trace, ui, name} = button.dataset, said = button.parentNode.querySelector("output");
  const say = sentence => { said.textContent = sentence; };
  const perfetto = window.open(ui);
  if (!perfetto) return say("The browser blocked the new tab: allow pop-ups for this page, and click again.");
  try {
    const answer = await fetch(trace);
    if (!answer.ok) throw new Error();
    const buffer = await answer.arrayBuffer();
    const ping = setInterval(() => perfetto.closed ? clearInterval(ping) : perfetto.postMessage("PING", ui), 100);
    window.addEventListener("message", function hand(event) {
      if (event.source !== perfetto || event.origin !== new window.URL(ui).origin || event.data !== "PONG") return;
      clearInterval(ping);
      window.removeEventListener("message", hand);
      perfetto.postMessage({perfetto: {buffer, title: name, fileName: name}}, ui);
      say("opened");
    });
    say("waiting for " + ui);
  } catch {
    perfetto.close();
    say("This page cannot fetch the trace: download the file, and open it in " + ui + " by hand.");
  }
})(this)
"""


def perfetto_button(path: Path | str, ui: str = PERFETTO) -> HTML:
    """Show a button that opens the trace at path in Perfetto's page ui, and a link to download it.

    Both fetch the file from the Jupyter server this notebook was opened with. Without one (VS Code,
    nbconvert), or with one that does not serve the file's folder, a sentence says what to do by
    hand. Raises FileNotFoundError if there is no such trace.
    """
    path = Path(path).resolve()
    size = path.stat().st_size
    name = escape(path.name)
    url = file_url(path)
    where = f"<code>{escape(str(short(path)))}</code> ({size / 1e3:.0f} kB)"
    if url is None:
        return HTML(f"Open {where} in <a href='{ui}'>{ui}</a>: drag the file onto that page.")
    return HTML(
        f'<div><button data-trace="{url}" data-ui="{ui}" data-name="{name}" '
        f'onclick="{escape(OPEN)}">'
        f'Open in Perfetto</button> <a href="{url}" download="{name}">download</a> {where} '
        "<output></output></div>"
    )


def file_url(path: Path) -> str | None:
    """Where the Jupyter server that started this kernel serves the file, or None if it does not."""
    running = Path(jupyter_runtime_dir()) / f"jpserver-{os.environ.get('JPY_PARENT_PID')}.json"
    try:
        server = json.loads(running.read_text())
        inside = path.relative_to(Path(server["root_dir"]).resolve())
    except (OSError, ValueError, LookupError):
        return None
    return server["base_url"] + "files/" + quote(inside.as_posix())
