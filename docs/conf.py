"""How `make docs` turns these pages and the docstrings into a site."""

import re

project = "ADDML"
html_title = "ADDML"
html_theme = "furo"
smartquotes = False
default_role = "code"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
suppress_warnings = ["toc.not_included"]  # of the tables under results, which their page leads to
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"members": True, "inherited-members": False}

PARTS = ("Parameters", "Attributes")


def laid_out(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """The parts "Parameters" and "Attributes" of a docstring, `name : what it is`, as lists of definitions."""
    found: list[str] = []
    for line in lines:
        if line in PARTS:
            found += [f".. rubric:: {line}", ""]
        elif entry := re.fullmatch(r"(\w[\w, ]*) : (.*)", line):
            found += [f"**{entry[1]}**", f"    {entry[2]}"]
        elif not re.fullmatch("-+", line):
            found.append(line)
    lines[:] = found


def setup(app: object) -> None:
    """Hear of every docstring."""
    app.connect("autodoc-process-docstring", laid_out)  # type: ignore[attr-defined]
