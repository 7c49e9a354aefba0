"""Opens the pages of a built site in Chromium: on a desktop and a phone, light and dark.

A page fails that logs an error, is wider than the window, lacks a picture, or is light in the dark.
"""

import importlib.util
import sys
from collections.abc import Iterator
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
"""a page of each kind; the other pages are opened on the dark phone, where most goes wrong"""

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
    others = [str(path.relative_to(site)) for path in sorted(site.rglob("*.html"))]
    found = [f"{page} does not exist" for page in EVERYWHERE if page not in everywhere]
    for window in WINDOWS:
        for scheme in SCHEMES:
            hardest = (window, scheme) == ("phone", "dark")
            pages = dict.fromkeys(everywhere + others if hardest else everywhere)
            found += look(site, list(pages), window, scheme)
    return found


def look(site: Path, pages: list[str], window: str, scheme: str) -> Iterator[str]:
    """What is wrong with pages in one window."""
    from browsers import Browser

    browser = Browser(WINDOWS[window], scheme)
    try:
        for page in pages:
            browser.open(f"{site.as_uri()}/{page}")
            faults = browser.run(WRONG, scheme == "dark")
            faults += [each["message"] for each in browser.errors()]
            yield from (f"{page} on a {scheme} {window}: {fault}" for fault in faults)
    finally:
        browser.close()
