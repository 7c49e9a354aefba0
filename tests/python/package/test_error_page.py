"""The page of mistakes has an entry for each address in a message; each exception has an entry."""

import ast
import re
from pathlib import Path

import pytest

import service_streamer
from service_streamer._base.messages import PAGE, see

ROOT = Path(__file__).parents[3]
FILE = "docs/troubleshooting/errors.md"
EXCEPTIONS = "docs/troubleshooting/exceptions.md"
PACKAGE = Path(service_streamer.__file__).parent
LONGEST = 12  # lines of an entry


def entries(page):
    """The lines of each entry of a page that are not empty, by its anchor."""
    found = {}
    for text in re.split(r"^### ", (ROOT / page).read_text(), flags=re.MULTILINE)[1:]:
        heading, _, body = text.partition("\n")
        body = body.partition("\n## ")[0]
        # the slug of GitHub: letters, digits, hyphens and underscores
        anchor = re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        found[anchor] = (heading, [line for line in body.splitlines() if line])
    return found


def anchors():
    """Each anchor that a message of the package or of its core names."""
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "see":
                anchor = node.args[1]
                assert isinstance(anchor, ast.Constant | ast.Name), file
                yield anchor.value if isinstance(anchor, ast.Constant) else unguarded_anchor()
    for file in (ROOT / "cpp/bindings").rglob("*.cc"):
        yield from re.findall(r'raise_mistake\(\w+,\s*"([\w-]+)"', file.read_text())
    # what pip prints after a build that failed
    yield from re.findall(rf"{re.escape(PAGE)}#([\w-]+)", (ROOT / "pyproject.toml").read_text())


def unguarded_anchor():
    from service_streamer._processes import unguarded

    return unguarded._ANCHOR


def exceptions():
    """The public exceptions: each subpackage has them in one module."""
    for file in [PACKAGE / "_base/errors.py", *PACKAGE.rglob("_errors.py")]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef) and node.bases:
                yield node.name


def test_messages_have_the_address_of_the_page():
    (home,) = re.findall(r'^Repository = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.M)
    assert f"{home}/blob/main/{FILE}" == PAGE


def test_a_message_that_quotes_another_has_one_address():
    quoted = see("it has a lock", "a-lock")
    assert see(f"refused ({quoted}): leave it out", "refused") == (
        f"refused (it has a lock): leave it out\nsee {PAGE}#refused"
    )


def test_each_anchor_of_a_message_is_on_the_page():
    named = set(anchors())
    assert len(named) > 10
    assert "a-failed-build" in named
    assert named <= entries(FILE).keys()


def test_each_exception_has_an_entry():
    found = [*entries(FILE).values(), *entries(EXCEPTIONS).values()]
    text = "\n".join(line for _, body in found for line in body)
    known = set(re.findall(r"`(\w+)`", text)) | {heading for heading, _ in found}
    assert set(exceptions()) <= known


def test_entries_are_short():
    long = {
        anchor
        for page in (FILE, EXCEPTIONS)
        for anchor, (_, body) in entries(page).items()
        if len(body) > LONGEST
    }
    assert long == set()


@pytest.mark.every_python
def test_python_reports_a_forgotten_await_in_the_words_of_the_page():
    with service_streamer.ThreadedStreamer(sorted, 8) as streamer:
        with pytest.warns(RuntimeWarning) as warnings:
            streamer.apredict([1])
        told = [f"RuntimeWarning: {warning.message}" for warning in warnings]
        coroutine, future = streamer.apredict([1]), streamer.submit([1])
        for forget in (lambda: coroutine[0], lambda: list(future)):
            with pytest.raises(TypeError) as raised:
                forget()
            told.append(f"TypeError: {raised.value}")
        coroutine.close()
    _, body = entries(FILE)["a-forgotten-await"]
    assert told == body[1:4]
