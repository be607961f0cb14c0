"""Sphinx's settings. `make docs` builds docs/_build/index.html; it needs no GPU, no MPI job and no network."""

import os
import pathlib
import sys

os.environ["TRITON_INTERPRET"] = "1"  # device functions are then plain Python functions, with docstrings and signatures
os.environ["PYSHMEM_QUIET"] = "1"
HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))

import calls  # noqa: E402
import families  # noqa: E402
import pages  # noqa: E402
import progress  # noqa: E402

from pyshmem.version import __version__  # noqa: E402

pages.write(HERE / "reference")
families.write(HERE / "reference")
calls.PAGE.write_text(calls.page())

project, copyright = "pyshmem", "The pyshmem developers"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary"]
autodoc_typehints, autodoc_typehints_format = "signature", "short"
autodoc_preserve_defaults = True
autosummary_generate = False
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "reference/c-families.md"]
html_theme = "furo"
html_static_path, html_css_files = ["style"], ["wrap.css"]
html_title = f"pyshmem {version}"
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
add_module_names = False
nitpicky = True
# types in signatures, which have no pages
nitpick_ignore_regex = [("py:(class|data|obj)", r"(?!pyshmem\.[A-Z]\w*$).*")]
suppress_warnings = ["myst.xref_missing"]  # links to files outside of docs; tests/jobs/test_docs.py follows them all


def setup(app):
    app.connect("autodoc-process-docstring", pages.show)
    app.connect("autodoc-process-signature", pages.spell)
    if not sys.stderr.isatty():  # a terminal is shown it by Sphinx itself
        progress.connect(app)
