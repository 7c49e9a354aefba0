"""What the pages say of commands, options and messages is what the code says."""

import argparse
import ast
import inspect
import re
import shlex
from pathlib import Path

import pytest

import service_streamer
from service_streamer import torch
from service_streamer._commands.main import _parser

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *DOCS.rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
TEXTS = {path: path.read_text() for path in sorted(PAGES) if path.parent != DOCS / "decisions"}
COMMAND = re.compile(r"\bservice-streamer (?=[a-z])[^&|;>\n]*")
FLAG = re.compile(r"--[a-z][\w-]*")


def commands():
    """Each command with its arguments in a block of a page."""
    for path, text in TEXTS.items():
        for block in re.findall(r"^```(?:sh|bash)\n(.*?)^```", text, re.M | re.S):
            for found in COMMAND.findall(block.replace("\\\n", " ")):
                plain = re.sub(r"\$\w+", "2", found)
                name = f"{path.relative_to(ROOT)}: {' '.join(plain.split())}"
                yield pytest.param(shlex.split(plain, comments=True)[1:], id=name)


def parsers():
    """The parser of each command, by its name."""
    (found,) = [each for each in _parser()._actions if hasattr(each, "choices") and each.choices]
    return found.choices


def flags(parser):
    """All spellings of each option of a command."""
    actions = [each for each in parser._actions if each.option_strings and each.dest != "help"]
    return [set(each.option_strings) for each in actions]


@pytest.mark.parametrize("arguments", [*commands()])
def test_a_command_on_a_page_is_one_that_can_be_called(arguments):
    _parser().parse_args(arguments)


def test_each_flag_in_the_text_of_a_page_is_one_of_the_command_that_is_named_there():
    known = {name: set().union(*flags(parser)) for name, parser in parsers().items()}
    wrong = [
        (str(path.relative_to(ROOT)), found)
        for path, text in TEXTS.items()
        for found in re.findall(r"`service-streamer ([a-z-]+[^`]*)`", text)
        if not set(FLAG.findall(found)) <= known.get(found.split()[0], set())
    ]
    assert wrong == []


def test_each_option_of_a_command_is_on_its_page_and_each_flag_of_the_page_is_an_option():
    names = ("api/command-line", "api/command-line-tools", "guide/hub/server")
    text = "\n".join((DOCS / f"{name}.md").read_text() for name in names)
    told = set(FLAG.findall(re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)))
    known = [each for parser in parsers().values() for each in flags(parser)]
    assert [each for each in known if not each & told] == []
    assert told - set().union(*known) <= {"--help"}


CLASSES = {
    "options.md": {
        "Every streamer that has an engine of its own": ("ThreadedStreamer", "Streamer"),
    },
    "worker-options.md": {
        "Streamer": ("Streamer",),
        "RedisStreamer": ("RedisStreamer",),
        "RedisWorker and run_redis_workers_forever": ("RedisWorker",),
        "RayStreamer": ("RayStreamer",),
    },
    "torch.md": {"Options": ("NativeModel", "BatchedModel")},
}
"""the classes of the options in the tables below a heading of a page in docs/api"""


def rows():
    """The class, the name and the default of each option whose default is a literal."""
    for page, headings in CLASSES.items():
        for part in (DOCS / "api" / page).read_text().split("\n## ")[1:]:
            heading, _, text = part.partition("\n")
            for table in re.findall(r"(?:^\|.*\n)+", text, re.M) if heading in headings else ():
                head, _, *lines = (
                    [c.strip() for c in line.split("|")] for line in table.split("\n")
                )
                if "option" in head:
                    for cells in lines[:-1]:
                        yield from of_row(cells[1], cells[head.index("default")], headings[heading])


def of_row(cell, default, classes):
    """The same for the cells of a row."""
    names = re.findall(r"`(\w+)`", cell)
    kinds = [name for name in names if name in dir(torch)] or classes
    options = [name for name in names if name not in kinds]
    for option, literal in zip(options, values_of(default, len(options)), strict=True):
        for kind in kinds if literal else ():
            yield pytest.param(kind, option, literal, id=f"{kind}-{option}")


def values_of(cell, count):
    """The literals of a cell: one for each option of the row, or one for all."""
    literal = re.compile(r'None|True|False|\(\)|"[^"]*"|-?[\d.,]+')
    parts = [part.strip("` ") for part in re.split("[,;] ", cell)]
    if len(parts) != count:
        parts = parts[:1] * count
    return [part if literal.fullmatch(part) else None for part in parts]


def signature(kind):
    return inspect.signature(
        getattr(torch if kind in dir(torch) else service_streamer, kind)
    ).parameters


@pytest.mark.parametrize(("kind", "option", "default"), [*rows()])
def test_a_default_on_a_page_is_that_of_the_class(kind, option, default):
    if option in signature(kind):
        # None: it depends on other options
        assert signature(kind)[option].default in (None, ast.literal_eval(default.replace(",", "")))


MESSAGE = re.compile(r"^\w+(?:\.\w+)*: (.+)$", re.M)
WORDS = 3  # of a message in a row, that the sources must have
OF_OTHERS = re.compile(
    "Could not find CMake|Cannot re-initialize CUDA|FileNotFoundError: |"
    "coroutine '.*' was never awaited|'.*' object is not "
)


def sources():
    """The literals of the package and of its core, where those side by side are one."""
    files = [*Path(service_streamer.__file__).parent.rglob("*.py"), *(ROOT / "cpp").rglob("*.cc")]
    text = "\n".join(file.read_text() for file in [*files, *(ROOT / "cpp").rglob("*.h")])
    text += (ROOT / "pyproject.toml").read_text()
    return " ".join(re.sub(r'["\']\s*\n\s*(?:<< )?f?["\']', "", text).replace('\\"', '"').split())


def test_the_messages_on_the_pages_of_errors_are_those_of_the_code():
    """Some words in a row: a message has values, and its type is written elsewhere."""
    text = sources()
    unknown = []
    for page in ("errors", "exceptions"):
        page_text = (DOCS / f"troubleshooting/{page}.md").read_text()
        for block in re.findall(r"^```text\n(.*?)^```", page_text, re.M | re.S):
            for message in MESSAGE.findall(block):
                words = message.removesuffix("...").split()
                size = min(WORDS, len(words))
                parts = [" ".join(words[n : n + size]) for n in range(len(words) - size + 1)]
                ours = not OF_OTHERS.match(message)
                if ours and not any(part in text for part in parts):
                    unknown.append(message)
    assert unknown == []


def test_a_parser_of_arguments_is_no_option_of_all_commands():
    """The helpers above find what they look for."""
    assert isinstance(parsers()["bench"], argparse.ArgumentParser)
    assert len(list(commands())) > 20
    assert len(list(rows())) > 60
