"""The API reference: ``<!-- reference: NAME -->`` in a page becomes the docstring of that name.

On a code host such a comment is invisible, and the page is a list of names with links.
"""

import re

from sphinx.application import Sphinx

COMMENT = re.compile(r"^<!-- reference: (?P<names>[^>]+) -->$", re.MULTILINE)
OF_CLASS = "\n   :members:\n   :show-inheritance:\n   :member-order: groupwise"
DIRECTIVE = {
    "class": f".. autoclass:: {{name}}{OF_CLASS}",
    "streamer": f".. autoclass:: {{name}}{OF_CLASS}\n   :inherited-members: Generic",
    "exception": ".. autoexception:: {name}\n   :members:\n   :show-inheritance:",
    "function": ".. autofunction:: {name}",
    "data": ".. autodata:: {name}",
}


def names(text: str) -> list[tuple[str, str]]:
    """The kind and the full name of each reference in a page."""
    found = []
    for comment in COMMENT.finditer(text):
        kind, *full = comment["names"].split()
        found += [(kind, name) for name in full]
    return found


def with_docstrings(app: Sphinx, name: str, source: list[str]) -> None:
    """Replace the comments of a page by directives."""

    def directives(comment: re.Match[str]) -> str:
        parts = [DIRECTIVE[kind].format(name=full) for kind, full in names(comment[0])]
        return "```{eval-rst}\n" + "\n\n".join(parts) + "\n```"

    source[0] = COMMENT.sub(directives, source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", with_docstrings)
    return {"parallel_read_safe": True}
