"""Pictures of measurements: ``<!-- plot: NAME "text" -->`` in a page becomes one of them.

They are drawn from benchmarks/results when the site is built, and are not in the repository. On a
code host such a comment is invisible, and the page has its tables.
"""

import re
import subprocess
import sys
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "plots"
PLOT = re.compile(r'^<!-- plot: (?P<name>\S+) "(?P<text>[^"]+)" -->$', re.MULTILINE)


def draw(app: Sphinx) -> None:
    """Draw all pictures."""
    for module in ("tables.plots", "tuning.pictures"):
        command = [sys.executable, "-m", module, FOLDER]
        subprocess.run(command, cwd=ROOT / "benchmarks", check=True)


def with_plots(app: Sphinx, name: str, source: list[str]) -> None:
    """Replace the comments of a page by pictures. A picture that is not there is an error."""
    folder = FOLDER.relative_to(ROOT)
    picture = rf'<img src="/{folder}/\g<name>.svg" alt="\g<text>" class="plot">'
    source[0] = PLOT.sub(picture, source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", draw)
    app.connect("source-read", with_plots)
    return {"parallel_read_safe": True}
