"""What the search finds first: options by their names, and messages by their words.

The build writes them to ``_static/entries.js``; ``static/search.js`` puts them before the results
of Sphinx. Options are the first cells of tables whose first column is "option". Messages are the
blocks of text in the pages on errors.
"""

import json
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

OPTION = re.compile(r"(--)?[a-z]\w+(-\w+)*")
MESSAGES = re.compile(r"^troubleshooting/(errors|exceptions)$")


def entry(app: Sphinx, node: nodes.Node, anchor: str, name: str, message: bool) -> dict[str, Any]:
    """What `search.js` needs to show a part of a page as a result."""
    section = node
    while not isinstance(section, nodes.section):
        section = section.parent
    title = section.next_node(nodes.title).astext()
    return {
        "page": app.env.docname,
        "title": title if message else name,
        "anchor": anchor or section["ids"][0],
        "name": name,
        "message": message,
    }


def collect(app: Sphinx, page: nodes.document) -> None:
    """Note the options and the messages of a page; each row of an option gets an anchor."""
    found: list[dict[str, Any]] = app.site_entries  # type: ignore[attr-defined]
    for table in page.findall(nodes.table):
        rows = list(table.findall(nodes.row))
        if rows[0][0].astext() != "option":
            continue
        for row in rows[1:]:
            for literal in row[0].findall(nodes.literal):
                name = literal.astext()
                if OPTION.fullmatch(name):
                    row[0]["ids"].append(anchor := f"option-{len(found)}")
                    found.append(entry(app, row, anchor, name, False))
    if MESSAGES.match(app.env.docname):
        for block in page.findall(nodes.literal_block):
            if block.get("language") == "text":
                lines = block.astext().splitlines()
                found += [entry(app, block, "", line, True) for line in lines]


def add_scripts(app: Sphinx, name: str, *_: object) -> None:
    """Load the scripts in the page of the search; they run after Sphinx's."""
    if name == "search":
        for file in ("entries.js", "search.js"):
            app.add_js_file(file, loading_method="defer")


def write(app: Sphinx, error: Exception | None) -> None:
    """Write what was collected."""
    if error is None:
        text = json.dumps(app.site_entries)  # type: ignore[attr-defined]
        Path(app.outdir, "_static/entries.js").write_text(f"const ENTRIES = {text};\n")


def setup(app: Sphinx) -> dict[str, bool]:
    app.site_entries = []  # type: ignore[attr-defined]  # each build reads all pages
    app.connect("doctree-read", collect)
    app.connect("html-page-context", add_scripts)
    app.connect("build-finished", write)
    return {"parallel_read_safe": False}
