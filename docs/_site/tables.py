"""Each cell of a table has the heading of its column: on a phone `site.css` makes rows to lists."""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator


class Translator(HTML5Translator):
    """Writes the headings as `data-label`."""

    def starttag(self, node: Any, tagname: str, *arguments: Any, **attributes: Any) -> str:
        if isinstance(node, nodes.entry) and node.get("heading"):
            attributes["data-label"] = node["heading"]
        return super().starttag(node, tagname, *arguments, **attributes)


def label(app: Sphinx, page: nodes.document) -> None:
    """Give each cell the heading of its column."""
    for table in page.findall(nodes.table):
        head, *rows = table.findall(nodes.row)
        for row in rows:
            for heading, cell in zip(head, row, strict=False):
                cell["heading"] = heading.astext()


def setup(app: Sphinx) -> dict[str, bool]:
    app.set_translator("html", Translator)
    app.connect("doctree-read", label)
    return {"parallel_read_safe": True}
