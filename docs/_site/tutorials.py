"""Notebooks as pages: each is run when the site is built, and shown with its outputs.

The files have no outputs of their own, so that a change of a notebook is a change of its text.
"""

import logging
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from myst_parser.parsers.sphinx_ import MystParser
from nbclient import NotebookClient
from sphinx.application import Sphinx
from traitlets.config import Config

SECONDS = 120
"""the most that a cell may take"""
ANSI = re.compile(r"\x1b\[[0-9;]*m")


class NotebookParser(MystParser):
    """Reads a notebook as the Markdown of its cells and of their outputs."""

    supported = ("ipynb",)

    def parse(self, inputstring: str, document: Any) -> None:
        notebook = nbformat.reads(inputstring, as_version=4)
        run(notebook)
        super().parse(markdown(notebook, Path(document["source"]).name), document)


def run(notebook: Any) -> None:
    """Run a notebook in a folder of its own. An exception of a cell ends the build."""
    with tempfile.TemporaryDirectory() as folder:
        config = Config({"AsyncKernelManager": {"transport": "ipc", "ip": f"{folder}/kernel"}})
        place = {"metadata": {"path": folder}}
        client = NotebookClient(notebook, config=config, timeout=SECONDS, resources=place)
        client.log.setLevel(logging.WARNING)
        client.execute(env=os.environ | {"IPYTHONDIR": folder})


def markdown(notebook: Any, name: str) -> str:
    """The page of a notebook that has run; `name` is that of its file."""
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        else:
            parts += [fenced("python", cell.source), *map(shown, cell.outputs)]
    title, _, rest = "\n\n".join(parts).partition("\n")
    return f"{title}\n\nThis page is a notebook: {{download}}`{name}`.\n{rest}\n"


def shown(output: Any) -> str:
    """What a cell has printed or shown, in the best form that it has."""
    if output.output_type == "stream":
        return fenced("text", ANSI.sub("", output.text))
    data = output.data
    if "image/png" in data:
        image = f'<img src="data:image/png;base64,{data["image/png"].strip()}" alt="a plot">'
        return fenced("{raw} html", image)
    if "text/html" in data:
        return fenced("{raw} html", data["text/html"])
    return fenced("text", data["text/plain"])


def fenced(language: str, text: str) -> str:
    return f"`````{language}\n{text.rstrip()}\n`````"


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_source_suffix(".ipynb", "ipynb")
    app.add_source_parser(NotebookParser)
    return {"parallel_read_safe": True}
