"""Fails where a built site has a link that leads nowhere, a wrong signature, or a foreign load.

`python check.py build/docs`. Sphinx looks at the links of the pages; this looks at the HTML as it
is, with the theme and the reference in it. Where there is Chromium, `looks` opens the pages.
"""

import html
import importlib
import inspect
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from looks import wrong_looks

import service_streamer

MODELS = {"predict_function", "predict_function_or_model", "model_class", "model"}
"""parameters that are no options"""

LOADED = {"audio", "embed", "iframe", "img", "link", "script", "source", "video"}
"""the tags that make a browser load something; a link that a reader follows is none"""
IN_STYLE = re.compile(r"@import|url\(\s*[\"']?(?:https?:)?//")

SIGNATURE = re.compile(r'<dt class="sig sig-object py" id="([\w.]+)">(.*?)</dt>', re.DOTALL)
PARAMETER = re.compile(r'<em class="sig-param">(.*?)</em>', re.DOTALL)
NAME = re.compile(r'<span class="n"><span class="pre">(\w+)</span>')
DEFAULT = re.compile(r'<span class="default_value">(.*)</span>', re.DOTALL)


QUESTIONS = {
    "worker_num": "api/options",
    "several GPUs": "how-to/several-gpus",
    "flask": "how-to/flask",
    "gunicorn preload": "how-to/gunicorn",
    "QueueFull": "troubleshooting/exceptions",
    "model.toml": "guide/hub/versions",
    "prometheus": "guide/monitoring/prometheus",
    "KMP_BLOCKTIME": "tuning/workers",
    "live page": "guide/monitoring/live-page",
    "redis": "guide/redis",
    "tune": "tuning/tune",
    "explain": "tuning/explain",
    "pipeline": "guide/pipelines",
    "the streamer was closed before the request of 1 item was answered": "troubleshooting/errors",
}
"""questions, and the page that the search must find first"""


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


def documented(name: str) -> object:
    """The object of a full name."""
    parts = name.split(".")
    for count in range(len(parts) - 1, 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            found = getattr(found, part)
        return found
    raise LookupError(name)


def shown(text: str) -> dict[str, str]:
    """The names and the defaults of the parameters in the HTML of a signature."""
    found = {}
    for each in PARAMETER.findall(text):
        if name := NAME.search(each):  # else it is * or /
            default = DEFAULT.search(each)
            found[name[1]] = html.unescape(re.sub("<[^>]+>", "", default[1])) if default else ""
    return found


def wrong_signatures(text: str) -> list[str]:
    """What differs in a page from the objects themselves."""
    found = []
    for name, signature in SIGNATURE.findall(text):
        try:
            member = documented(name)
            parameters = list(inspect.signature(member).parameters.values())  # type: ignore[arg-type]
        except (AttributeError, TypeError, ValueError):  # a field, or it has no signature
            continue
        told = shown(signature)
        if not told and inspect.isclass(member):  # nobody calls it
            continue
        if parameters and parameters[0].name == "self":
            del parameters[0]
        right = {
            each.name: "" if each.default is each.empty else repr(each.default)
            for each in parameters
        }
        for each in right.keys() & told.keys():
            if right[each][:1] == "<":  # only its name is for people
                right[each] = told[each]
        if told != right:
            wrong, missing = dict(told.items() - right.items()), dict(right.items() - told.items())
            found.append(f"{name} has {missing}, not {wrong}")
    return found


def missing_entries(site: Path) -> list[str]:
    """The options that the search does not find by their names: they are in no table of options."""
    _, _, text = (site / "_static/entries.js").read_text().partition("=")
    found = {entry["name"] for entry in json.loads(text.rstrip(";\n"))}
    options = {
        name
        for kind in ("ThreadedStreamer", "Streamer", "RedisStreamer", "RedisWorker", "RayStreamer")
        for name in inspect.signature(getattr(service_streamer, kind)).parameters
    }
    return sorted(options - found - MODELS)


def wrong_answers(site: Path) -> list[str]:
    """The questions whose page the search does not find first. Needs Node.js; without it, none."""
    if (node := shutil.which("node")) is None:
        return []
    script = Path(__file__).with_name("ask.js")
    asked = [node, str(script), str(site), *QUESTIONS]
    answers = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.splitlines()
    return [
        f"{question!r} finds {answer}, not {page}"
        for (question, page), answer in zip(QUESTIONS.items(), answers, strict=True)
        if answer != page
    ]


def faults(site: Path) -> list[str]:
    """What is wrong, a line each."""
    texts = {path: path.read_text() for path in sorted(site.rglob("*.html"))}
    pages = {path: Page(text) for path, text in texts.items()}
    found = [f"{path}: {each}" for path, text in texts.items() for each in wrong_signatures(text)]
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
    site = Path(sys.argv[1]).resolve()
    found = faults(site) + [f"the search has no option {name}" for name in missing_entries(site)]
    found += wrong_answers(site)
    found += wrong_looks(site)
    print("\n".join(found) if found else f"{sys.argv[1]}/index.html")
    sys.exit(1 if found else 0)
