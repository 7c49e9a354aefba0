"""Opens the pages of a built site in Chromium: on a desktop and a phone, light and dark.

A page fails that logs an error, is wider than the window, lacks a picture, or is light in the dark.
"""

import contextlib
import functools
import importlib.util
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).parents[2]
WINDOWS = {"desktop": (1280, 900), "phone": (390, 844)}
SCHEMES = ("light", "dark")

EVERYWHERE = (
    "index.html",  # a drawing
    "api/options.html",  # wide tables
    "api/service_streamer.Streamer.html",  # signatures
    "guide/monitoring/live-page.html",  # pictures
    "how-it-works/index.html",  # drawings
    "search.html?q=worker_num",
    "tuning/batches.html",  # plots
    "tutorials/batch-size.html",  # a notebook
)
"""a page of each kind; the others are opened on the dark phone only, where most goes wrong"""
SELDOM = ("decisions/", "developers/", "repository/", "api/service_streamer.")
"""pages that are not opened: for developers, or one like another of `EVERYWHERE`"""

WRONG = """
const found = [];
const { scrollWidth, clientWidth } = document.documentElement;
if (scrollWidth > clientWidth) found.push(`is ${scrollWidth} pixels wide, of ${clientWidth}`);
for (const image of document.images)
  if (image.complete && !image.naturalWidth) found.push(`does not show ${image.src}`);
const [red, green, blue] = getComputedStyle(document.body).backgroundColor.match(/\\d+/g);
if (+red + +green + +blue < 384 !== arguments[0]) found.push("has the other background");
return found;
"""


def wrong_looks(site: Path) -> list[str]:
    """What is wrong, a line each. Without Chromium and selenium nothing is opened."""
    sys.path.append(str(ROOT / "tests/python/support"))
    from browsers import CHROMIUM, DRIVER

    if None in (CHROMIUM, DRIVER, importlib.util.find_spec("selenium")):
        return []
    everywhere = [page for page in EVERYWHERE if (site / page.partition("?")[0]).exists()]
    pages = [str(path.relative_to(site)) for path in sorted(site.rglob("*.html"))]
    others = [page for page in pages if not page.startswith(SELDOM)]
    found = [f"{page} does not exist" for page in EVERYWHERE if page not in everywhere]
    with served(site) as url:
        for window in WINDOWS:
            for scheme in SCHEMES:
                hardest = (window, scheme) == ("phone", "dark")
                opened = dict.fromkeys(everywhere + others if hardest else everywhere)
                found += look(url, list(opened), window, scheme)
    return found


class Handler(SimpleHTTPRequestHandler):
    """Serves files, and logs nothing."""

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def served(site: Path) -> Iterator[str]:
    """The URL of a site; from files, the search may not read its pages."""
    handler = functools.partial(Handler, directory=site)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def look(url: str, pages: list[str], window: str, scheme: str) -> Iterator[str]:
    """What is wrong with pages in one window."""
    from browsers import Browser

    browser = Browser(WINDOWS[window], scheme)
    try:
        for page in pages:
            browser.open(f"{url}/{page}")
            faults = browser.run(WRONG, scheme == "dark")
            faults += [each["message"] for each in browser.errors()]
            yield from (f"{page} on a {scheme} {window}: {fault}" for fault in faults)
    finally:
        browser.close()
