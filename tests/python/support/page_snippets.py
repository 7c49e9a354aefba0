"""Runs the snippets of a page of the documentation as its reader would: in order, in one folder.

CONTRIBUTING.md lists what can be written before a snippet.
"""

import ast
import asyncio
import contextlib
import doctest
import importlib
import importlib.util
import inspect
import json
import re
import sys
from pathlib import Path
from unittest import SkipTest

import yaml
from page_installs import check_installs, installed_by, variables_for
from page_programs import Programs, without_requests
from scripts import PRELUDE, run_python
from sybil import Region
from sybil.document import Document
from sybil.parsers.markdown import SkipParser
from sybil.parsers.markdown.lexers import DirectiveInHTMLCommentLexer, FencedCodeBlockLexer
from waits import LONG

from service_streamer._engine import lifecycle
from service_streamer._streamers.streamer import BaseStreamer
from service_streamer.hub._loading.loader import Loader

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

NAME = re.compile(r"# ([\w./-]+\.\w+)\n")
"""the first line of a snippet that is a file"""
PROGRAM = re.compile(r"__name__ == .__main__.|monkey\.patch_all\(\)")
"""found in a snippet that needs an interpreter of its own"""
OWN_PROCESS = "<!-- own-process -->"
"""found in a page whose snippets change what other tests see, such as a tracer provider"""
NEEDS = {"torch", "native", "redis", "ray"}
"""what is not always there, and is named before a snippet that needs it"""
OPTIONAL = {
    "gradio",
    "jax",
    "lightgbm",
    "openvino",
    "sanic",
    "sentence_transformers",
    "sklearn",
    "streamlit",
    "tensorflow",
    "transformers",
    "xgboost",
}
"""the same for packages that the tests do not install; their snippets run where they are"""
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def parts_of(language, directive=False):
    """Parses the code blocks of a language, or the HTML comments with a directive."""
    lexer = DirectiveInHTMLCommentLexer if directive else FencedCodeBlockLexer
    find = lexer(language)

    def parse(evaluate):
        def regions(document):
            for found in find(document):
                words = found.lexemes["arguments"].strip() if directive else ""
                parsed = found.lexemes["source"] if words in ("", "python") else words
                yield Region(found.start, found.end, parsed, evaluate)

        return regions

    return parse


def skips(document):
    """Sybil's ``skip: next "reason"``, whose reason may not be left out."""
    for region in SkipParser()(document):
        action, reason = region.parsed
        place = f"{document.path}, {document.line_column(region.start)}"
        assert reason or action == "end", f"{place}: skip needs a reason"
        yield region


class Page:
    """One page. `have` is what its snippets may need; `places` are texts to replace in them."""

    def __init__(self, path, folder, have=(), places=None):
        self.path = path
        self.folder = folder
        self.have = have
        self.places = dict(places or {})
        self.namespace = {"__name__": "page"}
        self.programs = Programs(folder)
        self._lacks = False
        self._server = None
        self._loop = None

    def run(self):
        document = Document.parse(
            str(self.path),
            skips,
            parts_of("needs", directive=True)(self._need),
            parts_of("server", directive=True)(self._serve),
            parts_of("invisible-code-block", directive=True)(self._python),
            parts_of("python")(self._python),
            parts_of("sh")(self._shell),
            parts_of("json")(lambda example: self._data(example, json.loads)),
            parts_of("toml")(lambda example: self._data(example, tomllib.loads)),
            parts_of("yaml")(lambda example: self._data(example, yaml.safe_load_all)),
        )
        for example in document.examples():
            with contextlib.suppress(SkipTest):
                example.evaluate()

    # ------------------------------------------------------------- the parts of a page

    def _need(self, example):
        name, known = example.parsed, NEEDS | OPTIONAL
        assert name in known, f"{self.path}:{example.line} needs one of {known}"
        is_there = name in OPTIONAL and importlib.util.find_spec(name) is not None
        self._lacks = not is_there and name not in self.have

    def _serve(self, example):
        places = example.parsed.replace("no-port", "").split()
        self._server = [place if place[0] == "@" else f":{place}" for place in places]

    def _is_lacking(self):
        lacks, self._lacks = self._lacks, False
        return lacks

    def _data(self, example, parse):
        list(parse(example.parsed))
        self._save(example.parsed)

    def _save(self, text):
        """Write a snippet that is a file, and return its path."""
        name = NAME.match(text)
        if name is None:
            return None
        file = self.folder / name[1]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def _text(self, example, but=()):
        text = example.parsed
        for place, other in self.places.items():
            text = text if place in but else text.replace(place, other)
        return text

    def _python(self, example):
        text = self._text(example)
        if not text.startswith(">>>"):
            code = self._compile(text, example)  # also if it cannot run here
        if self._is_lacking():
            return
        file = self._save(text)
        if PROGRAM.search(text):
            file = file or self._save(f"# program.py\n{text}")
            self.programs.run([sys.executable, file.name], f"{self.path}:{example.line}")
        elif file and file.parent == self.folder and file.stem.isidentifier():
            if file.stem in self._modules:  # an example of another test has this name, too
                sys.modules.pop(file.stem, None)
            self.namespace.update(vars(importlib.import_module(file.stem)))
        elif file and file.parent != self.folder:
            pass  # a program of the page imports it from that folder
        elif text.startswith(">>>"):
            run_doctest(text, self.namespace, str(self.path), example.line)
        else:
            self._execute(code)

    def _compile(self, text, example):
        padded = "\n" * (example.line + example.parsed.line_offset) + text
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        return compile(padded, str(self.path), "exec", flags=flags, dont_inherit=True)

    def _execute(self, code):
        if code.co_flags & inspect.CO_COROUTINE:
            self._loop = self._loop or asyncio.new_event_loop()
            self._loop.run_until_complete(eval(code, self.namespace))
        else:
            exec(code, self.namespace)

    def _shell(self, example):
        server, self._server = self._server, None
        if self._is_lacking():
            return
        place = f"{self.path}:{example.line}"
        text = check_installs(self._text(example, but=server or ()))
        if server is not None:
            start, text = without_requests(text)
            self.places |= self.programs.serve(start, server, place)
            for each, other in self.places.items():
                text = text.replace(each, other)
        if text.strip():
            self.programs.run(["bash", "-ec", text], place)

    # -------------------------------------------------------------------- before and after

    def __enter__(self):
        self._closing = closed_streamers()
        self._closing.__enter__()
        self._modules = dict(sys.modules)
        sys.path.insert(0, str(self.folder))
        return self

    def __exit__(self, *failure):
        self.programs.end()
        self._closing.__exit__(*failure)
        if self._loop is not None:
            self._loop.close()
        sys.path.remove(str(self.folder))
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if file and Path(file).is_relative_to(self.folder):
                del sys.modules[name]
                if name in self._modules:
                    sys.modules[name] = self._modules[name]


@contextlib.contextmanager
def closed_streamers():
    """Close the streamers and the models of hubs that were made in the block."""
    before = set(lifecycle._streamers)
    try:
        yield
    finally:
        for each in set(lifecycle._streamers) - before:
            if isinstance(each, (BaseStreamer, Loader)):
                each.close(False, LONG)


def run_page(path, folder, have, places):
    """Run the snippets of a page, in an interpreter of its own if the page says so.

    If the page says what to install, as each how-to page does, they have nothing else.
    """
    installed = installed_by(path.read_text())
    how_to = path.parent.name == "how-to" and path.stem != "README"
    assert installed or not how_to, f"{path} does not say what to install"
    if installed or OWN_PROCESS in path.read_text():
        hides = (
            installed and "torch" not in have
        )  # torch looks for many modules that may be missing
        values = f"Path({str(path)!r}), Path({str(folder)!r}), {have!r}, {places!r}"
        hide = f"page_installs.hide({variables_for(installed)!r})\n" if hides else ""
        run_python(
            f"{PRELUDE}from pathlib import Path\nimport page_installs, page_snippets\n"
            f"{hide}page_snippets.run_here({values})",
            timeout=550 if "torch" in have else 110,  # torch compiles: 40 s on an idle machine
        )
    else:
        run_here(path, folder, have, places)


def run_here(path, folder, have, places):
    """Run the snippets of a page in this process."""
    with Page(path, folder, have, places) as page:
        page.run()


def run_doctest(text, namespace, name, line):
    """Run ``>>>`` examples; what differs is raised."""
    test = doctest.DocTestParser().get_doctest(text, namespace, name, name, line)
    report = []
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    runner.run(test, out=report.append, clear_globs=False)
    namespace.update(test.globs)
    assert not report, "".join(report)
