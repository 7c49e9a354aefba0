"""Fails where a line of C++ is too long, or where a comment has a word for people.

Threads, callers and processes are things: a comment says "the caller that", not "who".
"""

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
WIDTH = 120  # columns, in cpp/
PEOPLE = re.compile(r"\b(who|whom|whoever|nobody|somebody|he|his|him)\b", re.IGNORECASE)
# A string before a comment: what looks like a comment in a string is none.
CPP = re.compile(r'"(?:\\.|[^"\\\n])*"|(?P<comment>//[^\n]*|/\*.*?\*/)', re.DOTALL)


def cpp_comments(text: str) -> Iterator[tuple[int, str]]:
    """Line number and text of each line of a comment."""
    for found in CPP.finditer(text):
        for index, line in enumerate((found["comment"] or "").splitlines()):
            yield text.count("\n", 0, found.start()) + 1 + index, line


def python_comments(text: str) -> Iterator[tuple[int, str]]:
    """The same; a string that is a whole statement is a docstring, and counts."""
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        starts = before in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and starts):
            for index, line in enumerate(token.string.splitlines()):
                yield token.start[0] + index, line
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            before = token.type


def main() -> int:
    """Prints path:line: and what is wrong; the exit code says whether anything is."""
    wrong = []
    for path in sorted((ROOT / "cpp").rglob("*.*")):
        if path.suffix not in (".cc", ".h", ".cu", ".cuh"):
            continue
        text = path.read_text()
        lines = enumerate(text.splitlines(), start=1)
        wrong += [(path, n, f"{len(line)} columns") for n, line in lines if len(line) > WIDTH]
        wrong += [(path, n, line) for n, line in cpp_comments(text) if PEOPLE.search(line)]
    for path in sorted((ROOT / "python/service_streamer").rglob("*.py*")):
        if path.suffix in (".py", ".pyi"):
            comments = python_comments(path.read_text())
            wrong += [(path, n, line) for n, line in comments if PEOPLE.search(line)]
    for path, number, what in wrong:
        print(f"{path.relative_to(ROOT)}:{number}: {what.strip()}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
