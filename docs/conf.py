"""The site of the pages: ``make docs`` writes it to build/site, without a network.

The source is the repository itself, so that links between pages, lab book and data lead to the same
places on the site and in a clone.
"""

from __future__ import annotations

from typing import Any

from docutils.nodes import Text
from sphinx.ext.napoleon import Config, GoogleDocstring
from sphinx.pycode import ModuleAnalyzer

import hybridlat

project = "hybridlat"
author = "The hybridlat authors"
project_copyright = author
version = release = hybridlat.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_click"]
root_doc = "docs/index"
include_patterns = [
    "docs/**.md", "experiments/*.md", "data/**README.md",
    "models/README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md",
]  # fmt: skip
exclude_patterns = ["**/.*", ".*", "build", "dist", "hybridlat", "tests"]


myst_enable_extensions = ["attrs_block", "colon_fence"]
myst_heading_anchors = 4
smartquotes = False  # they make one dash of the two before an option

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "no-value": True}

html_theme = "furo"
html_title = "hybridlat"
html_static_path: list[str] = []
html_extra_path = ["site_root"]
html_copy_source = False
html_show_sphinx = False


def _examples_are_code(_app: Any, _what: str, _name: str, _thing: Any, _options: Any,
                       lines: list[str]) -> None:  # fmt: skip
    """Docstrings set examples off by four spaces; reStructuredText wants them announced."""
    for place in range(len(lines) - 2, -1, -1):
        starts = not lines[place].strip() and lines[place + 1].startswith("    ")
        before = next((line for line in reversed(lines[:place]) if line.strip()), "")
        if starts and not before.startswith(" ") and not before.endswith("::"):
            lines[place : place + 1] = ["", "::", ""]


def _sections_and_aliases(_app: Any, what: str, name: str, _thing: Any, _options: Any,
                          lines: list[str]) -> None:  # fmt: skip
    """``Args:`` and ``Attributes:`` become entries; an alias says what stands below it."""
    if what in ("class", "function", "method"):
        lines[:] = GoogleDocstring(lines, Config(), what=what, name=name).lines()
    elif what == "data":
        alias = name.rpartition(".")[2]
        documented = ModuleAnalyzer.for_module(hybridlat._HOMES[alias]).find_attr_docs()
        lines[:] = documented["", alias]


def _commands_are_code(_app: Any, _ctx: Any, lines: list[str]) -> None:
    """A block of commands in a help text is code, not verse."""
    for place in range(len(lines) - 1, -1, -1):
        if lines[place].startswith("| "):
            lines[place] = f"    {lines[place][2:]}"
            if place == 0 or not lines[place - 1].startswith("| "):
                lines[place:place] = [".. code-block:: sh", ""]


def _dashes(_app: Any, doctree: Any, _name: str) -> None:
    """Between a parameter and its words stands a dash."""
    for text in doctree.findall(Text):
        if text == " -- ":
            text.parent.replace(text, Text(" – "))


def setup(app: Any) -> None:
    """Sphinx calls this."""
    app.connect("sphinx-click-process-description", _commands_are_code)
    app.connect("doctree-resolved", _dashes)
    app.connect("autodoc-process-docstring", _sections_and_aliases)
    app.connect("autodoc-process-docstring", _examples_are_code)
