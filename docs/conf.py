"""How the documentation is built: `make docs`, warnings are errors."""

from __future__ import annotations

from importlib.metadata import version as installed_version

from pygments.lexers.data import JsonLexer
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

project = "secondcall"
author = "the secondcall authors"
copyright = "the secondcall authors"
version = release = installed_version("secondcall")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_preserve_defaults = True
autodoc_class_signature = "mixed"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = "secondcall"
html_show_sphinx = False
html_copy_source = False


def setup(app: Sphinx) -> None:
    """JSON Lines are coloured like JSON, diagrams in Mermaid shown as text."""
    app.add_lexer("jsonl", JsonLexer)
    app.add_lexer("mermaid", TextLexer)
