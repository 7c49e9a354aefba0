"""The API reference: ``<!-- reference: NAME -->`` in a page becomes the docstring of that name.

A class has a page of its own, and its comment becomes the first paragraph of the docstring. On a
code host such a comment is invisible, and the page is a list of names with links.
"""

import ast
import dataclasses
import importlib
import inspect
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "build" / "reference"
OWN_PAGE = {"class", "whole", "future", "streamer", "returned", "record"}
COMMENT = re.compile(r"^<!-- reference: (?P<names>[^>]+) -->$", re.MULTILINE)
OF_CLASS = "\n   :members:\n   :member-order: groupwise"
FUTURE = "result, exception, done, running, cancelled, cancel, add_done_callback"
PRIVATE = "from_engine, from_server"
DIRECTIVE = {
    "class": f".. autoclass:: {{name}}{OF_CLASS}",
    "whole": f".. autoclass:: {{name}}{OF_CLASS}\n   :inherited-members: Generic",
    "future": f".. autoclass:: {{name}}()\n   :members: {FUTURE}\n   :inherited-members:",
    "streamer": f".. autoclass:: {{name}}{OF_CLASS}\n   :inherited-members: BaseStreamer",
    "returned": f".. autoclass:: {{name}}(){OF_CLASS}",
    "record": f".. autoclass:: {{name}}(){OF_CLASS}\n   :exclude-members: {PRIVATE}, {{fields}}",
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


def source_of(kind: type) -> ast.ClassDef:
    """The class statement. A public class says that it is of the public package, so look for it."""
    for name, module in list(sys.modules.items()):
        if name.startswith("service_streamer") and vars(module).get(kind.__name__) is kind:
            for statement in ast.parse(inspect.getsource(module)).body:
                if isinstance(statement, ast.ClassDef) and statement.name == kind.__name__:
                    return statement
    raise LookupError(kind)


def fields_of(kind: type) -> Iterator[str]:
    """The fields of a dataclass, each with the string below it."""
    docs = {}
    for each in kind.__mro__:
        if dataclasses.is_dataclass(each):
            body = source_of(each).body
            for field, below in zip(body, [*body[1:], None], strict=True):
                if isinstance(field, ast.AnnAssign):
                    text = getattr(getattr(below, "value", None), "value", "")
                    docs[field.target.id] = inspect.cleandoc(text) if isinstance(text, str) else ""
    for field in dataclasses.fields(kind):
        text = textwrap.indent(docs[field.name], "      ")
        yield f"   .. py:attribute:: {field.name}\n      :type: {field.type}\n\n{text}\n"


def directive(kind: str, name: str) -> str:
    """What makes autodoc write the docstring."""
    if kind != "record":
        return DIRECTIVE[kind].format(name=name)
    record = member(name)
    fields = ", ".join(field.name for field in dataclasses.fields(record))  # with their texts below
    return "\n\n".join((DIRECTIVE[kind].format(name=name, fields=fields), *fields_of(record)))


def member(name: str) -> Any:
    """The object of a full name."""
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


def write_pages(app: Sphinx) -> None:
    """Write the page of each class."""
    shutil.rmtree(PAGES, ignore_errors=True)
    PAGES.mkdir(parents=True)
    for page in sorted((ROOT / "docs/api").glob("*.md")):
        for kind, name in names(page.read_text()):
            if kind in OWN_PAGE:
                title = name.rpartition(".")[2]
                text = f"# {title}\n\n```{{eval-rst}}\n{directive(kind, name)}\n```\n"
                (PAGES / f"{name}.md").write_text(text)


def summary(name: str) -> str:
    """What the page that lists a class says about it."""
    first, *_ = inspect.getdoc(member(name)).split("\n\n")  # type: ignore[union-attr]
    title = name.rpartition(".")[2]
    return f"{first}\n\n:doc:`All about {title} </api/{name}>`"


def with_docstrings(app: Sphinx, name: str, source: list[str]) -> None:
    """Replace the comments of a page by directives."""
    own = [full for kind, full in names(source[0]) if kind in OWN_PAGE]

    def directives(comment: re.Match[str]) -> str:
        parts = [
            summary(full) if kind in OWN_PAGE else directive(kind, full)
            for kind, full in names(comment[0])
        ]
        return "```{eval-rst}\n" + "\n\n".join(parts) + "\n```"

    source[0] = COMMENT.sub(directives, source[0])
    if own:
        entries = "\n".join(f"/api/{full}" for full in own)
        source[0] += f"\n\n```{{toctree}}\n:hidden:\n\n{entries}\n```\n"


def without_wrong_links(app: Sphinx, page: nodes.document) -> None:
    """Leave types of torch as text: Sphinx finds fields that have the same name, like device."""
    for link in list(page.findall(addnodes.pending_xref)):
        if link.get("reftype") == "class" and link["reftarget"] in ("device", "dtype"):
            link.replace_self(nodes.Text(f"torch.{link['reftarget']}"))


def with_named_default(app: Sphinx, *found: object) -> tuple[str, str] | None:
    """Show the registry of prometheus_client by its name, not by its repr."""
    *_, parameters, returned = found
    text = re.sub(
        r"<prometheus_client\.\S+ object[^>]*>", "prometheus_client.REGISTRY", parameters or ""
    )
    return (text, returned) if parameters else None


def setup(app: Sphinx) -> dict[str, bool]:
    app.setup_extension("sphinx.ext.autodoc")  # it has an event that is used here
    app.connect("builder-inited", write_pages)
    app.connect("source-read", with_docstrings)
    app.connect("doctree-read", without_wrong_links)
    app.connect("autodoc-process-signature", with_named_default)
    return {"parallel_read_safe": True}
