"""Sphinx settings of the site; `make site` writes its sources (docs/pages.py) and builds it."""

import functools
import gc
import os
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish
from sphinx.util.docutils import SphinxTranslator

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from course.lessons import former_names, lesson_file  # noqa: E402
from course.paths import NOTEBOOKS  # noqa: E402
from course.perfetto import OPEN  # noqa: E402
from docs import icons, rules, site_files  # noqa: E402
from docs.address import BINDER, BRANCH, COLAB, github_name, open_links, repository  # noqa: E402
from docs.search import GALLERY  # noqa: E402

about = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
project = "CUDA graphs in PyTorch"
author = about["authors"][0]["name"]
copyright = f"{author}: code MIT, text CC BY 4.0"
release = about["version"]

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "sphinxext.opengraph",
    "sphinx_reredirects",
]
html_theme = "sphinx_book_theme"
html_title = project
html_static_path = ["static"]
templates_path = ["templates"]
html_sidebars = {
    "**": [
        "navbar-logo.html",
        "icon-links.html",
        "search-button-field.html",
        "error-link.html",
        "sbt-sidebar-nav.html",
    ]
}
html_css_files = ["course.css"]
html_js_files = ["course.js"]
html_favicon = "static/favicon.svg"
# the workflow that publishes the site knows it
html_baseurl = ogp_site_url = os.environ.get("SITE_ADDRESS", "")
ogp_image = "_static/cpu_gpu.png"
ogp_image_alt = (
    "Host, GPU busy and step time of the same training step: eager, and as one CUDA graph"
)
ogp_social_cards = {"enable": False}  # they would be drawn anew for every page
html_domain_indices = False
html_theme_options = {
    "show_navbar_depth": 1,
    "collapse_navbar": True,  # the 25 solutions are listed in the side bar of their own pages alone
    "show_toc_level": 2,
    "use_download_button": True,
    "use_fullscreen_button": False,
    "navbar_persistent": [],  # the search field stands in the side bar
}
address = repository()
if address:
    html_theme_options |= {
        "repository_url": address,
        "repository_branch": BRANCH,
        "use_repository_button": True,
        "use_edit_page_button": True,
        "use_issues_button": True,
    }
if github_name(address):
    html_theme_options["launch_buttons"] = {
        "binderhub_url": BINDER,
        "colab_url": COLAB,
        "notebook_interface": "jupyterlab",
    }
ASKING = {  # pages that answer from the rules of capturable explain, and what they load beside them
    "explain": "ask.js",
    f"notebooks/{lesson_file(GALLERY).stem}": "ask.js",
    "search": "finding.js",
}
SOLUTIONS = {f"notebooks/solutions/{path.stem}" for path in NOTEBOOKS.glob("solutions/*.ipynb")}
WRITTEN = {"index", "explain", "404", "api", "notebooks/solutions/index"}  # by docs/pages.py

redirects = {  # from a lesson's former address to its present one
    f"notebooks/{folder}{old}": f"{lesson_file(name).stem}.html"
    for old, name in former_names().items()
    for folder in ("", "solutions/")
}
nb_execution_mode = "off"  # the outputs are the recordings'
nb_render_markdown_format = "myst"  # tables and links in outputs too
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
myst_heading_slug_func = "docs.pages.slug"
suppress_warnings = ["misc.highlighting_failure"]  # cells may call the shell
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # names in signatures need no page of their own
autodoc_member_order = "bysource"
default_role = "code"
html_math_renderer = "mathml"


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx: add MathML, the search's English, Perfetto's button, plain docstrings."""
    # pages are many objects and little garbage; the usual 700 cost a sixth of the build
    gc.set_threshold(50_000)
    visit_and_depart = (write_math, None)
    app.add_html_math_renderer("mathml", visit_and_depart, visit_and_depart)
    app.add_search_language(English)
    app.add_js_file(None, body=f"const openInPerfetto = {OPEN.strip().removesuffix('(this)')};")
    app.connect("autodoc-process-docstring", escape_docstring)
    app.connect("html-page-context", add_page_context, priority=900)  # after the theme
    app.connect("build-finished", write_after_build)
    return {"parallel_read_safe": True}


def add_page_context(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Called for each page: add the scripts that it alone needs, and put its buttons right."""
    if page in ASKING:
        for file in ("rules.js", "explain.js", ASKING[page]):
            app.add_js_file(file)
    for group in [one for one in context.get("header_buttons", []) if "buttons" in one]:
        if page in WRITTEN:  # is no file that one could edit
            group["buttons"] = [
                one for one in group["buttons"] if one.get("label") != "source-edit-button"
            ]
        if group["label"] == "launch-buttons" and page in WRITTEN | SOLUTIONS:
            context["header_buttons"].remove(group)
        elif group["label"] == "launch-buttons":
            # in Colab, the lesson that fetches the rest
            doors = open_links(address, f"{page}.ipynb")
            group["buttons"] = [one | {"url": doors[one["text"]]} for one in group["buttons"]]
            icon = {"icon": "fab fa-github", "tooltip": "Open the course in Codespaces"}
            link = {"type": "link", "text": "Codespaces", "url": doors["Codespaces"]}
            group["buttons"].append(link | icon)


def write_after_build(app: Sphinx, error: Exception | None) -> None:
    """Called at the end of a build: write what Sphinx does not."""
    if error is None:
        html = Path(app.outdir)
        (html / "_static/rules.js").write_text(rules.rules_js(), encoding="utf-8")
        site_files.copy_original_notebooks(html)
        icons.replace_icon_script(html)
        site_files.fix_error_page_links(html, html_baseurl)


class English(SearchEnglish):
    """The search's English, which also knows numbers of three digits: CUDA's errors."""

    stem = functools.cache(SearchEnglish.stem)  # Sphinx itself forgets the words of a page

    def word_filter(self, word: str) -> bool:
        """Whether the search knows a word."""
        return (word.isdigit() and len(word) == 3) or super().word_filter(word)


def write_math(translator: SphinxTranslator, node: nodes.math) -> None:
    """Write math as MathML, which browsers draw without a script or fonts from elsewhere."""
    translator.body.append(tex2mathml(node.astext(), as_block=isinstance(node, nodes.math_block)))
    raise nodes.SkipNode


def escape_docstring(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Docstrings are plain text: keep stars; lines indented by two are a list, others stay."""
    paragraphs = []
    for paragraph in "\n".join(lines).strip().split("\n\n"):
        text = re.sub(r"([*|\\])", r"\\\1", paragraph)
        if re.search(r"^  \S", text, re.MULTILINE):
            text = re.sub(r"\n {3,}", " ", text)
            text = re.sub(r"^  (?=\S)", "\n- ", text, flags=re.MULTILINE)
        elif re.search(r"^ ", text, re.MULTILINE):
            text = re.sub(r"^", "| ", text, flags=re.MULTILINE)
        paragraphs.append(text)
    lines[:] = [*"\n\n".join(paragraphs).splitlines(), ""]
