"""The published figures: pages are those of the results in benchmarks/results."""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "benchmarks/results"


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


def test_the_report_on_its_page_is_the_measured_one():
    report = json.loads((RESULTS / "tuning.json").read_text())["report"]
    page = (ROOT / "docs/tuning/explain.md").read_text()
    block = page.partition("```text\n")[2].partition("\n```\n")[0]
    assert block.split() == report.split()  # sentences are wrapped on the page


def test_each_case_of_the_bench_has_a_row(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from plan import CASES
    from tables.parts import ROWS

    shown = {figure.case for row in ROWS for figure in row.figures}
    assert {case.name for case in CASES} == shown
