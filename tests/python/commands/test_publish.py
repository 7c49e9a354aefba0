"""`service-streamer publish`: a version is tried, and copied to a folder of models."""

import pytest
from hub_models import Folder

from service_streamer._commands.main import main


@pytest.fixture
def folder(tmp_path):
    folder = Folder(tmp_path)
    folder.add(3)
    return folder


@pytest.mark.parametrize(
    ("name", "factor", "more", "code", "out", "said"),
    [
        ("times", "4", (), 0, "4\n", "times@4 is in "),
        ("times", "many", (), 1, "", "version 4 of model 'times' is not published: ModelLoadError"),
        ("other", "4", (), 2, "", "make it, with a model.toml"),
        ("times", "4", ("--version", "3"), 2, "", "exists already"),
        ("times", "4", ("--version", "-1"), 2, "", "version must be"),
    ],
)
def test_it_publishes_a_version_or_says_why_not(
    folder, tmp_path, capfd, name, factor, more, code, out, said
):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "factor").write_text(factor)
    models = str(tmp_path / "models")
    assert main(["publish", models, name, str(tmp_path / "new"), *more]) == code
    written = capfd.readouterr()
    assert (written.out, said in written.err) == (out, True), written.err
    assert ("ValueError: invalid literal" in written.err) == (code == 1)  # and its traceback
    assert (folder.model / "4").exists() == (code == 0)
