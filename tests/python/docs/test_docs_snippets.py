"""Every snippet of the README and of docs/ runs as printed, page by page."""

import importlib.util
import re
from pathlib import Path

import pytest

pytest.importorskip("sybil")

from page_snippets import run_page
from torch_examples import marks

ROOT = Path(__file__).parents[3]
DECISIONS = ROOT / "docs/decisions"  # they tell what was, and nothing there has to run
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
NEED = re.compile(r"^\s*<!--+ *needs: (\w+)", re.MULTILINE)


def pages():
    """Each page, and once more with each thing that is not always there."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if DECISIONS in path.parents:
            continue
        name = path.relative_to(ROOT).with_suffix("").as_posix()
        yield pytest.param(path, set(), id=name)
        needs = set(NEED.findall(path.read_text()))
        if needs & {"torch", "native"}:
            yield pytest.param(path, {"torch"}, id=f"{name}-torch", marks=marks())
        if "redis" in needs:
            yield pytest.param(path, {"redis"}, id=f"{name}-redis", marks=pytest.mark.over_redis)
        if "ray" in needs:
            yield pytest.param(path, {"ray"}, id=f"{name}-ray", marks=pytest.mark.over_ray)


def test_code_has_at_most_80_columns():
    """The column of the site, and half of a screen, have no more. Printed text may be longer."""
    wide = []
    for path in sorted((ROOT / "docs").rglob("*.md")):
        if DECISIONS not in path.parents:
            for language, code in BLOCK.findall(path.read_text()):
                lines = [] if language == "text" else code.splitlines()
                wide += [f"{path.relative_to(ROOT)}: {line}" for line in lines if len(line) > 80]
    assert not wide, "\n".join(wide)


@pytest.mark.parametrize(("path", "have"), list(pages()))
def test_the_snippets_of_a_page_run(request, tmp_path, monkeypatch, path, have):
    places = {}
    if "torch" in have:
        torch = request.getfixturevalue("torch")
        places = {} if torch.cuda.is_available() else {"cuda:0": "cpu"}
        have = have | {"native"} if importlib.util.find_spec("service_streamer._torch") else have
    if "redis" in have:
        url = request.getfixturevalue("shared_redis_server").url
        places = dict.fromkeys(("broker:6379", "localhost:6379"), url.removeprefix("redis://"))
    if "ray" in have:
        request.getfixturevalue("ray_address")
    monkeypatch.chdir(tmp_path)
    run_page(path, tmp_path, have, places)
