"""Fails where a line of C++ is too long, and where words break the house's rules.

- A comment or docstring has a word for people. Threads, callers and processes are things: a comment
  says "the caller that", not "who".
- A test or a page says "told" or "tells" where "reported", "logged", "says" or "has" is meant.
- A docstring of the tests begins in the middle of a sentence, as "of the load that goes on".
- The name of a test has one of these words, or is too long to be read aloud.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
WIDTH = 120  # columns, in cpp/
LONGEST = 85  # characters of the name of a test
PEOPLE = re.compile(r"\b(who|whom|whoever|nobody|somebody|he|his|him)\b", re.IGNORECASE)
TOLD = re.compile(r"\b(told|tells)\b", re.IGNORECASE)
FRAGMENT = re.compile(r"(of|for|from|at|by|with|in|on|to|that|which|than|whose) ")
# A string before a comment: what looks like a comment in a string is none.
CPP = re.compile(r'"(?:\\.|[^"\\\n])*"|(?P<comment>//[^\n]*|/\*.*?\*/)', re.DOTALL)

Lines = Iterator[tuple[int, str]]  # number and text


def cpp_comments(text: str) -> Lines:
    """Each line of a comment."""
    for found in CPP.finditer(text):
        for index, line in enumerate((found["comment"] or "").splitlines()):
            yield text.count("\n", 0, found.start()) + 1 + index, line


def python_comments(text: str) -> Lines:
    """The same; a string that is a whole statement is a docstring, and counts."""
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        starts = before in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and starts):
            for index, line in enumerate(token.string.splitlines()):
                yield token.start[0] + index, line
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            before = token.type


def prose(text: str) -> Lines:
    """Each line of a page that is neither code nor quoted."""
    code = False
    for number, line in enumerate(text.splitlines(), start=1):
        code ^= line.lstrip().startswith("```")
        if not code:
            yield number, re.sub(r"`[^`]*`|\"[^\"]*\"", "", line)


def fragments(text: str) -> Lines:
    """Docstrings that begin in the middle of a sentence."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            string = node.value.value
            if isinstance(string, str) and FRAGMENT.match(string):
                yield node.lineno, string.splitlines()[0]


def test_names(text: str) -> Lines:
    """The names of tests as words."""
    for found in re.finditer(r"^ *(?:async )?def (test_\w+)", text, re.MULTILINE):
        yield text.count("\n", 0, found.start()) + 1, found[1].replace("_", " ")


def files(folder: str, *suffixes: str) -> Iterator[tuple[Path, str]]:
    """The files of a folder that git knows, with their texts."""
    # Continuous integration runs this as another user than that of the checkout.
    command = ["git", "-c", "safe.directory=*", "ls-files", "-co", "--exclude-standard", folder]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for path in sorted(ROOT / name for name in names.splitlines()):
        if path.suffix in suffixes and path.is_file():
            yield path, path.read_text()


def faults() -> Iterator[tuple[Path, int, str]]:
    """All lines that are wrong."""
    for folder in ("cpp", "tests"):
        for path, text in files(folder, ".cc", ".h", ".cu", ".cuh"):
            if folder == "cpp":
                for number, line in enumerate(text.splitlines(), start=1):
                    if len(line) > WIDTH:
                        yield path, number, f"{len(line)} columns"
            for number, line in cpp_comments(text):
                if PEOPLE.search(line) or (folder == "tests" and TOLD.search(line)):
                    yield path, number, line
    for path, text in files("python/service_streamer", ".py", ".pyi"):
        for number, line in python_comments(text):
            if PEOPLE.search(line):
                yield path, number, line
    for path, text in files("tests", ".py"):
        if path == Path(__file__):
            continue
        for number, line in python_comments(text):
            if PEOPLE.search(line) or TOLD.search(line):
                yield path, number, line
        for number, line in fragments(text):
            yield path, number, line
        for number, name in test_names(text):
            if PEOPLE.search(name) or TOLD.search(name) or len(name) > LONGEST:
                yield path, number, name
    for path, text in files(".", ".md"):
        for number, line in prose(text):
            if TOLD.search(line):
                yield path, number, line


def main() -> int:
    """Prints path:line: and what is wrong; the exit code says whether anything is."""
    wrong = list(faults())
    for path, number, what in wrong:
        print(f"{path.relative_to(ROOT)}:{number}: {what.strip()}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
