"""Which file is which page of the site, and the order of the navigation.

docs/ is the top of the site, and a folder's README.md is its index. Pages outside docs/ are below
``repository/``. The pages of classes, which `reference` writes to build/reference, are in ``api/``.
The navigation is what each README.md in docs/ links to in its own folder.
"""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from sphinx.application import Sphinx
from sphinx.project import Project

ROOT = Path(__file__).parents[2]
REFERENCE = Path("build/reference")
ADOPTED = {ROOT / "docs/decisions": ROOT / "docs/developers"}
"""where a folder is in the navigation, if not in the folder that it lies in"""
LINK = re.compile(r"(?<=\]\()(?P<path>[^)#:\s]+)(?P<anchor>#[^)\s]*)?(?=\))")
FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2", re.MULTILINE | re.DOTALL)


def page_of(path: str) -> str:
    """The name of the page of a file, such as how-to/index for docs/how-to/README.md."""
    name = PurePosixPath(path).with_suffix("")
    if name.name == "README":
        name = name.with_name("index")
    inside = name.parts[0] == "docs"
    return str(name.relative_to("docs") if inside else "repository" / name)


class Pages(Project):
    """The files of the repository, with the names that their pages have."""

    def discover(
        self, exclude_paths: Iterable[str] = (), include_paths: Iterable[str] = ("**",)
    ) -> set[str]:
        super().discover(exclude_paths, include_paths)
        self._path_to_docname = {path: page_of(str(path)) for path in self._path_to_docname}
        for path in sorted((ROOT / REFERENCE).glob("*.md")):
            self._path_to_docname[REFERENCE / path.name] = f"api/{path.stem}"
        self._docname_to_path = {name: path for path, name in self._path_to_docname.items()}
        self.docnames.clear()
        self.docnames.update(self._docname_to_path)
        return self.docnames

    def path2doc(self, filename: str | os.PathLike[str]) -> str | None:
        path = Path(os.path.relpath(filename, self.srcdir)) if os.path.isabs(filename) else filename
        return self._path_to_docname.get(Path(path)) or super().path2doc(path)


def links(text: str) -> Iterator[re.Match[str]]:
    """The relative links of a page, in their order; code is left out."""
    code = [match.span() for match in FENCE.finditer(text)]
    for link in LINK.finditer(text):
        if not any(start <= link.start() < end for start, end in code):
            yield link


def with_readmes(text: str, folder: Path) -> str:
    """The page, whose links to a folder lead to its README.md."""
    for link in reversed(list(links(text))):
        target = folder / link["path"]
        if (target / "README.md").is_file():
            path = os.path.relpath(target / "README.md", folder)
            text = text[: link.start("path")] + path + text[link.end("path") :]
    return text


def listed(text: str, folder: Path) -> list[str]:
    """The pages of this folder and the indexes of folders in it, in the order of the links."""
    found = []
    for link in links(text):
        path = Path(os.path.normpath(folder / link["path"]))
        index = path.name == "README.md" and path.parent != folder
        above = ADOPTED.get(path.parent, path.parent.parent) if index else path.parent
        if above == folder and path.suffix in (".md", ".ipynb"):
            found.append(page_of(str(path.relative_to(ROOT))))
    return [f"/{name}" for name in dict.fromkeys(found)]


def complete(app: Sphinx, name: str, source: list[str]) -> None:
    """Adds to a page what the code host shows by itself, and the navigation."""
    path = Path(app.env.doc2path(name))
    if path.suffix != ".md":
        return
    text = with_readmes(source[0], path.parent)
    if name.startswith("repository/"):
        text = "---\norphan: true\n---\n" + text
    elif path.name == "README.md" and (entries := listed(text, path.parent)):
        text += "\n\n```{toctree}\n:hidden:\n\n" + "\n".join(entries) + "\n```\n"
    source[0] = text


def use_pages(app: Sphinx) -> None:
    """Replaces the plain names that Sphinx gives to files."""
    app.project.__class__ = Pages


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", use_pages)
    app.connect("source-read", complete)
    return {"parallel_read_safe": True}
