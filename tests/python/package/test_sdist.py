"""The source distribution holds all that building and testing needs, and nothing else."""

import email
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]

pytest.importorskip("scikit_build_core")

# what only the repository needs
LEFT_OUT = re.compile(r"\.(ci|devcontainer|github)/|\.pre-commit-config\.yaml$")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """The names in the archive, without its own top folder, and the text of PKG-INFO."""
    folder = tmp_path_factory.mktemp("sdist")
    build = "from scikit_build_core.build import build_sdist; import sys; build_sdist(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", build, str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=110,
    )
    (archive,) = folder.glob("service_streamer_ng-*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2]: name for name in tar.getnames()}
        return set(names), tar.extractfile(names["PKG-INFO"]).read().decode()


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not in a repository")
def test_sdist_has_what_the_repository_has(sdist):
    names, _ = sdist
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    files = {name for name in listed.stdout.splitlines() if os.path.lexists(ROOT / name)}
    assert names == {name for name in files if not LEFT_OUT.match(name)} | {"PKG-INFO"}


def test_an_index_shows_the_readme_with_links_that_lead_somewhere(sdist):
    markdown_it = pytest.importorskip("markdown_it")
    _, text = sdist
    info = email.message_from_string(text)
    home = dict(line.split(", ") for line in info.get_all("Project-URL"))["Repository"]
    page = markdown_it.MarkdownIt("commonmark", {"html": True}).render(info.get_payload())
    links = re.findall(r'(?:href|src)="([^"]+)"', page)
    assert [each for each in links if not re.match(r"https?://|#", each)] == []
    version = info["Version"]
    ours = [each for each in links if each.startswith(home)]
    assert any("/raw/" in each for each in ours)
    assert any("/blob/" in each for each in ours)
    for link in ours:
        found = re.fullmatch(
            rf"{re.escape(home)}/(?:blob|raw)/v{re.escape(version)}/([^#]+)(?:#.*)?", link
        )
        assert found, link
        assert (ROOT / found[1]).exists(), link
