"""Fails where a built site has a link that leads nowhere, or loads something from another host.

`python check.py build/docs`. Sphinx looks at the links of the pages; this looks at the HTML as it
is, with the theme and the reference in it.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"audio", "embed", "iframe", "img", "link", "script", "source", "video"}
"""the tags that make a browser load something; a link that a reader follows is none"""
IN_STYLE = re.compile(r"@import|url\(\s*[\"']?(?:https?:)?//")


class Page(HTMLParser):
    """The anchors of a page, and its links as (tag, target)."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors = {""}
        self.links: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" or (name == "name" and tag == "a"):
                self.anchors.add(value or "")
            elif name in ("href", "src", "srcset", "data") and value and tag != "use":
                self.links.append((tag, value))


def faults(site: Path) -> list[str]:
    """What is wrong, a line each."""
    pages = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        for tag, link in page.links:
            parts = urlsplit(link)
            if parts.scheme in ("data", "mailto"):
                continue
            if parts.netloc:
                if tag in LOADED:
                    found.append(f"{path}: loads {link}")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target = target / "index.html"
            if not target.exists():
                found.append(f"{path}: {link} does not exist")
            elif target in pages and unquote(parts.fragment) not in pages[target].anchors:
                found.append(f"{path}: {link} has no such anchor")
    for path in site.rglob("*.css"):
        found += [
            f"{path}: {line.strip()}"
            for line in path.read_text().splitlines()
            if IN_STYLE.search(line)
        ]
    return found


if __name__ == "__main__":
    found = faults(Path(sys.argv[1]).resolve())
    print("\n".join(found) if found else f"{sys.argv[1]}/index.html")
    sys.exit(1 if found else 0)
