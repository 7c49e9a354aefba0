"""The published figures: pages and pictures are those of the results in benchmarks/results."""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "benchmarks/results"
PLOTS = ROOT / "benchmarks/plots"
PICTURES = {
    "local": [PLOTS / f"{name}.svg" for name in ("throughput", "latency", "web")],
    "processes": [PLOTS / "processes.svg"],
    "redis": [PLOTS / "redis.svg"],
    "native": [PLOTS / "native.svg"],
    "autoscaling": [ROOT / "docs/how-to/autoscaling.svg"],
    "scale": sorted(PLOTS.glob("scale-*.svg")),
    "tuning": sorted((ROOT / "docs/tuning").glob("*.svg")),
}


def test_the_pages_are_what_the_results_say():
    script = ROOT / "benchmarks/report.py"
    checked = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, f"run `python benchmarks/report.py`:\n{checked.stderr}"


def test_the_figures_of_web_servers_are_copied_from_the_results():
    measured = (ROOT / "docs/benchmarks/local.md").read_text()
    page = (ROOT / "docs/troubleshooting/limits.md").read_text()
    copied = re.findall(r"\| ([\d,]+) / ([\d,]+) per s \|", page)
    assert len(copied) == 4
    assert [pair for pair in copied if "{}/s / {}/s".format(*pair) not in measured] == []


@pytest.mark.parametrize("name", PICTURES)
def test_the_pictures_are_drawn_from_the_results(name):
    digest = hashlib.sha256((RESULTS / f"{name}.json").read_bytes()).hexdigest()
    assert [picture.name for picture in PICTURES[name] if digest not in picture.read_text()] == []


def test_the_report_on_its_page_is_the_measured_one():
    report = json.loads((RESULTS / "tuning.json").read_text())["report"]
    page = (ROOT / "docs/tuning/explain.md").read_text()
    block = page.partition("```text\n")[2].partition("\n```\n")[0]
    assert block.split() == report.split()  # sentences are wrapped on the page
