"""Rename all over the project a lesson, or a function, class or constant:

    python -m course.commands.rename [OLD_NAME NEW_NAME]

A lesson's number is in its file name, and links contain file names, so that they can be clicked in
JupyterLab and on GitHub. A lesson's new name may begin with a new number: 12_verb_object. Its
notebooks, scenarios and recordings move, and whatever names it follows, but for %%gpu cells, which
are compared with recordings. A function must leave the program the same but for its name; then the
recordings that were fresh at the last commit are carried over from there. Without names, only
today's file names of the lessons are written into every link.
"""

import argparse
import ast
import json
import keyword
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import nbformat

from course.commands.carry_over import carry_over
from course.files import changed_files
from course.lessons import FORMER_NAMES, former_names, lesson_file, unnumbered
from course.paths import ROOT, short
from course.recordings.cells import handed_on, python
from course.recordings.counts import ROOMS
from course.recordings.statements import IMPORT, bound

FILE = re.compile(r"\b\d+_\w+\.(?:ipynb|html|md)\b")
NAME = re.compile(r"(?:(\d\d)_)?([a-z][a-z0-9]*(?:_[a-z0-9]+)+)")  # a number, a verb and an object
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)  # in Markdown
LINKS = ("*.md", "*/README.md", "docs/*.md", "jupyter/*.json")
TEXTS = (*LINKS, "**/*.py", "**/*.toml", "docs/**/*.*", "capturable/*.json", "traces/works_on.json")
FILES = (
    "exercises/scenarios/{}.py",
    "tests/exercises/answers/{}.py",
    "traces/**/{}.json",
    "traces/**/{}",
)


def rename_lesson(old: str, new: str, root: Path = ROOT) -> list[Path]:
    """Give a lesson a new name, number or both; return the texts and notebooks that named it.

    notebooks/former_names.json keeps its old file name, for readers' copies and addresses of pages.
    Raises LookupError if there is no lesson old, ValueError for a new name or number that is none,
    or taken.
    """
    notebooks = root / "notebooks"
    stem = lesson_file(old, notebooks).stem
    number, name = split_lesson_name(new)
    number = number or stem[:2]
    taken = {present[:2]: present for lesson, present in file_stems(root).items() if lesson != old}
    if number in taken:
        raise ValueError(f"{number} is the number of {taken[number]}: choose a free one.")
    if name != old:
        refuse_taken_name(name, root)
    for folder in (notebooks, notebooks / "solutions"):
        lesson_file(old, folder).rename(folder / f"{number}_{name}.ipynb")
    former = {one: name if now == old else now for one, now in former_names(notebooks).items()}
    former = {one: now for one, now in (former | {stem: name}).items() if one != f"{number}_{name}"}
    text = json.dumps(dict(sorted(former.items())), indent=1)
    (notebooks / FORMER_NAMES).write_text(f"{text}\n", encoding="utf-8")
    for path in [path for pattern in FILES for path in root.glob(pattern.format(old))]:
        path.rename(path.with_name(name + path.suffix))
    named = re.compile(rf"""(?:(?<=["'`/.])|(?<=\d_)|^){old}\b(?!\()""", re.MULTILINE)
    found = rewrite_all(root, partial(named.sub, name), TEXTS, lambda code: handed_on(code) is None)
    return sorted({*found, *update_links(root)})


def split_lesson_name(name: str) -> tuple[str, str]:
    """The number ("" for none) and the name in a lesson's new name. Raises ValueError."""
    if not (found := NAME.fullmatch(name)):
        raise ValueError(
            f"{name!r} is no name of a lesson: a verb and an object, such as share_memory_pools."
        )
    return found[1] or "", found[2]


def refuse_taken_name(name: str, root: Path = ROOT) -> None:
    """Raise ValueError for a lesson's name that is taken."""
    if stem := file_stems(root).get(name):
        raise ValueError(f"There is a lesson {name} already: notebooks/{stem}.ipynb.")


def file_stems(root: Path = ROOT) -> dict[str, str]:
    """The stem of each lesson's file, by the lesson's name: verb_object -> NN_verb_object."""
    return {unnumbered(path.stem): path.stem for path in root.glob("notebooks/[0-9]*.ipynb")}


def update_links(root: Path = ROOT) -> list[Path]:
    """Write the lessons' present file names into all Markdown; return the files that changed."""
    return rewrite_all(root, partial(renumber_file_names, files=file_stems(root)), LINKS)


def renumber_file_names(text: str, files: dict[str, str]) -> str:
    """The text with today's number in the name of every lesson's file; other names stay.

    files: what stems returns.
    """

    def today(match: re.Match) -> str:
        stem, _, suffix = match[0].rpartition(".")
        return f"{files.get(unnumbered(stem), stem)}.{suffix}"

    return FILE.sub(today, text)


def rewrite_all(
    root: Path,
    new: Callable[[str], str],
    patterns: tuple[str, ...],
    code: Callable[[str], bool] = lambda source: False,
) -> list[Path]:
    """Update the texts that these patterns find, the Markdown of all notebooks, and the code cells
    that are chosen; return the files that changed.
    """
    found = []
    paths = {path for pattern in patterns for path in root.glob(pattern)}
    for path in sorted(paths | {*root.glob("notebooks/**/*.ipynb")}):
        if path.suffix == ".ipynb":
            notebook = nbformat.read(path, as_version=4)
            before = nbformat.writes(notebook)
            for cell in notebook.cells:
                if cell.cell_type == "markdown" or code(cell.source):
                    cell.source = new(cell.source)
            text = nbformat.writes(notebook)
        elif path.suffix in (".md", ".json", ".py", ".toml") and ".venv" not in str(path):
            before = path.read_text(encoding="utf-8")
            text = new(before)
        else:
            continue
        if text != before:
            path.write_text(text + "\n" * (path.suffix == ".ipynb"), encoding="utf-8")
            found.append(path)
    return found


def rename_definition(old: str, new: str, root: Path = ROOT) -> list[Path]:
    """Rename a function, class or constant; return the texts, modules and notebooks that named it.

    Raises LookupError if no module defines old; ValueError if new is taken, or if old names
    something else too, or is a word of the project's prose.
    """
    trees = list(_trees(root))
    homes = {
        path.stem
        for path, tree in trees
        for node in tree.body
        if path.suffix == ".py" and old in bound(node) and not isinstance(node, IMPORT)
    }
    if not homes:
        raise LookupError(f"There is no lesson {old}, and no module of {', '.join(ROOMS)} has it.")
    if not new.isidentifier() or keyword.iskeyword(new):
        raise ValueError(f"{new!r} is no name that Python takes.")
    for path, tree in trees:
        for node in ast.walk(tree):
            if new in _names_of_node(node):
                raise ValueError(f"{new} is taken: {short(path)} uses it.")
            if old in _names_of_node(node) and not _may_mean_definition(node, homes):
                raise ValueError(
                    f"{old} is also an attribute or an argument in {short(path)}: rename one of "
                    "the two by hand first."
                )
    whole_word = re.compile(rf"\b{old}\b")
    if "_" not in old:  # else it is no word of any language
        for path, text in _markdown(root):
            if whole_word.search(CODE.sub("", text)):
                raise ValueError(f"{old} is also a word of {short(path)}: rename it by hand.")
    return rewrite_all(root, partial(whole_word.sub, new), TEXTS, lambda code: True)


def _trees(root: Path) -> Iterator[tuple[Path, ast.Module]]:
    """The modules of the project and its tests, and the code of the notebooks."""
    for room in (*ROOMS, "docs", "tests"):
        for path in (root / room).rglob("*.py"):
            yield path, ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(root.glob("notebooks/**/*.ipynb")):
        cells = nbformat.read(path, as_version=4).cells
        for cell in (cell for cell in cells if cell.cell_type == "code"):
            yield path, ast.parse(python(cell.source))


def _markdown(root: Path) -> Iterator[tuple[Path, str]]:
    """The texts of the project, and the Markdown of each notebook."""
    for path in (path for pattern in LINKS for path in root.glob(pattern)):
        yield path, path.read_text(encoding="utf-8")
    for path in sorted(root.glob("notebooks/**/*.ipynb")):
        cells = nbformat.read(path, as_version=4).cells
        yield path, "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def _names_of_node(node: ast.AST) -> set[str]:
    """The names that a piece of syntax uses itself."""
    fields = (getattr(node, field, None) for field in ("id", "name", "asname", "arg", "attr"))
    return {name for name in fields if isinstance(name, str)}


def _may_mean_definition(node: ast.AST, homes: set[str]) -> bool:
    """Whether the name in this syntax can be that of a definition in one of these modules."""
    if isinstance(node, ast.Attribute):  # of a module: timing.measure
        return bool({getattr(node.value, "id", ""), getattr(node.value, "attr", "")} & homes)
    return not isinstance(node, ast.keyword | ast.arg)


def main(arguments: list[str] | None = None) -> int:
    """Rename and say what changed; return 1, after a sentence, after a mistake, or if a recording
    is refused.
    """
    parser = argparse.ArgumentParser(prog="make rename", description=__doc__.splitlines()[0])
    old = "a lesson's name without its number, or make_batches"
    parser.add_argument("old", nargs="?", help=old)
    parser.add_argument("new", nargs="?", help="its new name")
    options = parser.parse_args(arguments)
    if options.old and not options.new:
        parser.error(f"which name shall {options.old} get?")
    is_lesson = options.old in file_stems()
    if options.old and not is_lesson and (files := changed_files()):
        print(f"Commit or undo first what you have changed: {', '.join(files)}.", file=sys.stderr)
        return 1
    try:
        if not options.old:
            paths = update_links()
        elif is_lesson:
            paths = rename_lesson(options.old, options.new)
        else:
            paths = rename_definition(options.old, options.new)
    except (LookupError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"Changed: {', '.join(str(short(path)) for path in paths) or 'nothing'}.")
    if not options.old or is_lesson:
        return 0
    carried, refused = carry_over("HEAD", (options.old, options.new))
    print(f"Carried over: {', '.join(carried) or 'no recording had named it'}.")
    for sentence in refused:
        print(f"Not carried over: {sentence}.", file=sys.stderr)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
