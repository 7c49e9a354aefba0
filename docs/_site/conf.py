"""Sphinx's settings for the site; `make docs` builds it. Decision 046 tells why it is made so.

The source folder is the whole repository: links work on the site as they do on a code host.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import service_streamer

project = "service-streamer"
author = "the service-streamer developers"
version = release = service_streamer.__version__

extensions = [
    "pages",
    "plots",
    "reference",
    "search",
    "tables",
    "tutorials",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
root_doc = "index"
include_patterns = ["*.md", "benchmarks/**", "cpp/**", "docs/**", "examples/**", "python/**"]
exclude_patterns = [".*", "build", "dist", "tests", "**/__pycache__", "docs/_site"]

myst_enable_extensions = ["alert", "html_image"]
myst_heading_anchors = 4

default_role = "py:obj"  # a name between single backticks in a docstring
add_module_names = False
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_param = False  # "a, b: text" stays one entry, instead of the text twice

smartquotes = False  # "adaptive" is a value
html_theme = "furo"
html_title = f"{project} {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_favicon = str(Path(__file__).parent / "static/favicon.svg")
html_search_scorer = str(Path(__file__).parent / "scorer.js")
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}
html_show_sphinx = html_show_copyright = False
html_copy_source = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
