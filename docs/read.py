"""Write the lessons with what their cells show as Markdown:  python -m docs.read [LESSON ...]

read/NN_verb_object.md is what a hosting site shows of a lesson, with its tables and charts, before
anything is built. `make read` writes it anew, of all lessons or of those that are named; a test
compares.
"""

import base64
import io
import re
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import nbformat
from PIL import Image

from course.lessons import PUZZLES, lesson_file, title
from course.machine import gpus_in_words
from course.paths import ROOT, LessonError, lesson_name
from course.recordings.recording import find_recording
from docs.lesson_page import escape_about, gpu_count, is_folded, is_for_readers, without_styles
from docs.played import played, recorded_lessons
from exercises.guesses import NO_GUESS

READ = ROOT / "read"
STILL = re.compile(r'<img alt="([^"]*)" src="data:image/svg\+xml,([^"]*)"')
FOLDED = "<details><summary>The code of this cell</summary>\n\n{code}\n\n</details>"
COLOURS = 64  # of a chart: a third of the bytes
NEXT = "Next lesson: "
ABOUT = (
    "> This page shows what the cells of the lesson show. Those that begin with `%%gpu` were "
    "recorded on {gpus} (torch {torch}, {date}); all others were run on what was recorded. To "
    "change something, [run the lesson](../README.md#start), with or without a GPU: it is "
    "[notebooks/{name}](../notebooks/{name})."
)


def page(notebook: nbformat.NotebookNode, path: Path) -> tuple[str, dict[str, bytes]]:
    """A lesson's page, and its charts by their file names.

    notebook: the lesson at path with its outputs.
    """
    name = lesson_name(path)
    about = escape_about(find_recording(name).about)
    charts: dict[str, bytes] = {}
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(link_to_pages(cell.source))
            continue
        code = fenced(cell.source, "python")
        parts.append(FOLDED.format(code=code) if is_folded(cell) else code)
        for output in filter(is_for_readers, cell.outputs):
            if (chart := picture_of_output(output)) is not None:
                text, kind, content = chart
                file = f"{name}_{len(charts) + 1}.{kind}"
                charts[file] = content
                text = re.sub(r"([\[\]])", r"\\\1", text)
                parts.append(f"![{text}](charts/{file})")
            elif text := as_markdown(output):
                parts.append(text)
    parts.append(next_lesson_line(path))
    where = gpus_in_words(about, gpu_count(notebook))
    said = ABOUT.format(gpus=where, name=path.name, torch=about["torch"], date=about["date"])
    return "\n\n".join([parts[0], said, *parts[1:]]).rstrip() + "\n", charts


def next_lesson_line(path: Path) -> str:
    """The last line of a lesson's page; "" after the last lesson."""
    after = next((one for one in recorded_lessons() if one > path), None)
    return f"{NEXT}[{title(after)}]({after.stem}.md)." if after else ""


def picture_of_output(output: nbformat.NotebookNode) -> tuple[str, str, bytes] | None:
    """The picture of an output: its text, "png" or "svg", and its bytes; None if it shows none.

    Of a picture that moves, it is what stands where no script runs.
    """
    data = output.get("data", {})
    if "image/png" in data:
        return data["text/plain"], "png", reduce_colours(base64.b64decode(data["image/png"]))
    if still := STILL.search(data.get("text/html", "")):
        return unescape(still[1]), "svg", unquote(still[2]).encode()
    return None


def as_markdown(output: nbformat.NotebookNode) -> str:
    """An output other than a chart; "" for what only a browser with scripts shows."""
    if output.output_type == "stream":
        return fenced(output.text.rstrip(), "text")
    html, plain = output.data.get("text/html", ""), output.data.get("text/plain", "")
    if "<table" in html:
        return without_guess_column(without_styles(html))
    if 'class="highlight"' in html:
        return fenced(plain.strip(), "python")
    if "text/markdown" in output.data:
        return link_to_pages(output.data["text/markdown"])
    if plain.startswith("<IPython"):
        return ""
    return fenced(plain.removeprefix(NO_GUESS), "text")


def without_guess_column(html: str) -> str:
    """A table without its first column if it holds guesses, because nobody has guessed here."""
    if "<th>your guess</th>" not in html:
        return html
    html = html.replace("<th>your guess</th>", "")
    return re.sub(r"</th><td>\??</td>", "</th>", html)  # "": a row that nobody is asked about


def fenced(text: str, language: str) -> str:
    """Text as a block of code."""
    fence = "````" if "```" in text else "```"
    return f"{fence}{language}\n{text}\n{fence}"


def link_to_pages(text: str) -> str:
    """Markdown of a notebook whose links to lessons lead to their pages and headings here."""
    puzzles = lesson_file(PUZZLES).name  # which has no page here
    text = text.replace(f"]({puzzles}", f"](../notebooks/{puzzles}")
    text = re.sub(r"\]\((\d+_\w+)\.ipynb", r"](\1.md", text)
    text = re.sub(r"""(\]\((?:[./\w]+\.md)?#|href="#)([^)"\s]+)""", _github_anchor, text)
    return text.replace("](solutions/", "](../notebooks/solutions/")


def _github_anchor(link: re.Match) -> str:
    """The start of a link, and its heading as hosting sites name it: JupyterLab keeps the case."""
    return link[1] + re.sub(r"[^\w-]", "", link[2]).lower()


def reduce_colours(png: bytes) -> bytes:
    """A chart in few colours."""
    written = io.BytesIO()
    image = Image.open(io.BytesIO(png)).convert("RGB")
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(written, "PNG", optimize=True)
    return written.getvalue()


def write(lessons: list[Path], folder: Path = READ) -> None:
    """Write the pages of these lessons, and remove what else lies there of them or of none."""
    written = {folder / "README.md"}
    for path, notebook in played(lessons).items():
        text, charts = page(notebook, path)
        files = {f"{path.stem}.md": text.encode()}
        files |= {f"charts/{name}": png for name, png in charts.items()}
        for name, content in files.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            written.add(file)
    kept = set(recorded_lessons()) - set(lessons)
    stems = {path.stem for path in kept} | {lesson_name(path) for path in kept}
    for file in [*folder.glob("*.md"), *folder.glob("charts/*")]:
        own = {file.stem, file.stem.rpartition("_")[0]}  # a page, or a chart and its number
        if file not in written and not own & stems:
            file.unlink()


def main(names: list[str]) -> int:
    """Write the pages of the lessons with these names, or of all; returns 1 for a wrong name."""
    try:
        write([lesson_file(name) for name in names] or recorded_lessons())
    except (LookupError, LessonError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
