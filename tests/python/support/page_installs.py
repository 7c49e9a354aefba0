"""What the pages tell their readers to install, and how it is to have nothing else."""

import functools
import os
import re
import runpy
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).parents[3]
HOOK = Path(__file__).parent / "only_installed"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OURS = PROJECT["name"]
ORIGINAL = "service-streamer"  # a page warns of it
USES = {
    "base": [],
    "missing": [],
    "flask": ["flask"],
    "uvicorn": [f"{OURS}[web]", "uvicorn"],
    "uvicorn server": [f"{OURS}[server,web,metrics]", "uvicorn"],
    **{each: [f"{OURS}[{each}]"] for each in PROJECT["optional-dependencies"] if each != "test"},
}
"""each use of tests/extras.py, and what must be installed for it"""
LINE = re.compile(r"^pip install.*\n?", re.MULTILINE)
COMMAND = re.compile(r"pip install ([^`#\n]+)")
"""a command in a snippet or a sentence"""


def installed_by(text):
    """The requirements of all commands in a text, without options and the original."""
    return [each for each in _words(text) if each != ORIGINAL]


def _words(text):
    words = [word.strip("'\"") for found in COMMAND.finditer(text) for word in found[1].split()]
    return [word for word in words if re.match(r"\w", word)]


def check_installs(text):
    """The commands without ``pip install``, whose names and extras are those of pyproject.toml."""
    for each in map(Requirement, _words("".join(LINE.findall(text)))):
        if each.name.startswith("service-streamer"):
            assert each.name == OURS, text
            assert each.extras <= PROJECT["optional-dependencies"].keys(), text
    return LINE.sub("", text)


def closure(requirements):
    """The names of the distributions that pip installs for some requirements, and of ours."""
    found, left = set(), [OURS, *requirements]
    while left:
        need = Requirement(left.pop())
        name, extras = canonicalize_name(need.name), frozenset(need.extras)
        if (name, extras) in found:
            continue
        found.add((name, extras))
        try:
            further = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # such as torch; then it is not needed here
            continue
        for text in further:
            marker = Requirement(text).marker
            if marker is None or any(marker.evaluate({"extra": e}) for e in extras or {""}):
                left.append(text.partition(";")[0])
    return {name for name, _ in found}


@functools.cache
def modules():
    """The modules of each distribution of this environment, as sets of their dotted names."""
    found = {}
    for each in metadata.distributions():
        names = found.setdefault(canonicalize_name(each.name), set())
        for file in each.files or ():
            if file.suffix in (".py", ".so") and ".." not in file.parts:
                parts = [*file.parts[:-1], file.name.partition(".")[0]]
                names |= {".".join(parts[:n]) for n in range(1, len(parts) + 1)}
    return found


def hidden(requirements):
    """The outermost modules of this environment that come with no requirement."""
    wanted = closure(requirements)
    there = set().union(*(names for each, names in modules().items() if each in wanted))
    others = set().union(*(names for each, names in modules().items() if each not in wanted))
    return sorted(
        name
        for name in others - there
        if (outer := name.rpartition(".")[0]) == "" or outer in there
    )


def variables_for(requirements):
    """The variables that leave an interpreter with these requirements and nothing else."""
    path = os.pathsep.join(filter(None, [str(HOOK), os.environ.get("PYTHONPATH")]))
    return {"PYTHONPATH": path, "SERVICE_STREAMER_TESTS_HIDDEN": " ".join(hidden(requirements))}


def environment_with(requirements):
    """The environment of such an interpreter."""
    return os.environ | variables_for(requirements)


def hide(variables):
    """Hide the rest from this interpreter, unless it was imported, and from its children."""
    os.environ.update(variables)
    runpy.run_path(str(HOOK / "sitecustomize.py"))
