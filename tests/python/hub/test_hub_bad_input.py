"""Bad input affects no other model: the hub names it, and the models go on."""

import itertools
import os
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from waits import LONG, eventually

from service_streamer.hub import ModelLoadError, ModelSpec, UnknownModel, _models


@pytest.fixture
def hub(folder, watched):
    """A hub that serves version 1."""
    folder.add(1)
    hub = watched()
    hub.load("times")
    return hub


def error(hub, name="times"):
    model = hub.status().get(name)
    return "" if model is None else model.error or ""


def serves(hub, number):
    return hub.status()["times"].serving == number and hub.predict("times", [1]) == [number]


# ----------------------------------------------------------------------- names


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../times", "times/1", "times/../times", "\0", "times@", "times@../1", "@1",
     "times@01", "times@-1", "times@1.0", "times@\N{SUPERSCRIPT ONE}", "times@" + 5000 * "1"],
)  # fmt: skip
def test_a_name_is_no_path(hub, name):
    with pytest.raises(UnknownModel):
        hub[name]


@pytest.mark.parametrize("name", [None, 1, b"times"])
def test_a_name_is_a_text(hub, name):
    with pytest.raises(TypeError, match="the name of a model must be a str, not"):
        hub[name]


def test_folders_with_other_names_are_reported(folder, hub):
    for name in ("a b", "-x", ".hidden"):
        shutil.copytree(folder.model, folder.root / "models" / name)
    eventually(lambda: "must consist of letters" in error(hub, "a b"))
    eventually(lambda: "not '-x'" in error(hub, "-x"))
    assert ".hidden" not in hub.status()
    with pytest.raises(UnknownModel):
        hub["a b"]


# -------------------------------------------------------------------- versions


def test_two_versions_of_one_number(folder, hub):
    shutil.copytree(folder.model / "1", folder.model / "01")
    eventually(lambda: "01 is ignored: a version is a plain number" in error(hub))
    assert serves(hub, 1)


def test_what_is_no_folder_is_no_version(folder, hub):
    (folder.model / "2").write_text("")
    (folder.model / "3").symlink_to("3")
    (folder.model / "4").symlink_to("nowhere")
    eventually(lambda: error(hub).count("is ignored") == 3)
    folder.add(5)
    eventually(lambda: serves(hub, 5))


def test_a_version_that_cannot_be_read(folder, hub, monkeypatch):
    """The user of the tests may read everything."""

    def denied(real):
        def read(path, *args, **options):
            if str(path).startswith(str(folder.model / "2")):
                raise PermissionError(13, "Permission denied", str(path))
            return real(path, *args, **options)

        return read

    for name in ("stat", "read_text"):
        monkeypatch.setattr(Path, name, denied(getattr(Path, name)))
    folder.add(2)
    eventually(lambda: 2 in hub.status()["times"].versions)
    eventually(lambda: hub.status()["times"].versions[2].state == "failed")
    assert "Permission denied" in hub.status()["times"].versions[2].error
    assert serves(hub, 1)
    folder.add(3)
    eventually(lambda: serves(hub, 3))


def test_a_version_that_is_deleted_under_load(folder, hub, threads):
    ended = []

    def ask():
        while not ended:
            hub.predict("times", [1], timeout=LONG)

    for _ in range(4):
        threads.run(ask)
    shutil.rmtree(folder.model / "1")
    eventually(lambda: "no version" in error(hub))
    assert hub.predict("times", [1]) == [1]
    folder.add(2)
    eventually(lambda: serves(hub, 2))
    ended.append(True)
    assert threads.join() == [None] * 4


def test_a_version_that_is_deleted_cannot_be_loaded_again(folder, hub):
    shutil.rmtree(folder.model / "1")
    hub.unload("times")
    with pytest.raises(ModelLoadError, match="No such file or directory"):
        hub.predict("times", [1])


def test_the_whole_folder_is_deleted(folder, hub, caplog):
    shutil.rmtree(folder.root / "models")
    eventually(lambda: any("cannot be read" in each.getMessage() for each in caplog.records))
    if "times" in hub:  # or it was seen without models first
        assert hub.predict("times", [1]) == [1]


# ------------------------------------------------------------------ model.toml


def test_another_kind_of_file(folder, hub):
    file, new = folder.model / "model.toml", folder.root / "new"
    os.mkfifo(new)
    os.replace(new, file)
    eventually(lambda: f"{file} is not a file" in error(hub))
    assert serves(hub, 1)
    folder.configure()
    eventually(lambda: not error(hub))
    new.symlink_to(folder.model / "1")  # a folder
    os.replace(new, file)
    eventually(lambda: f"{file} is not a file" in error(hub))
    assert serves(hub, 1)


@pytest.mark.parametrize(
    ("contents", "complaint"),
    [
        (b'\npin = "\xff"', "model.toml, line 2: 'utf-8' codec can't decode byte 0xff"),
        (b"#" * 2_000_000, "model.toml has 2000000 bytes, more than 1000000"),
        (b"warmup = " + b"[" * 100_000, "model.toml: arrays or tables are nested too deeply"),
    ],
)
def test_contents(folder, hub, contents, complaint):
    new = folder.root / "new.toml"
    new.write_bytes(contents)
    new.rename(folder.model / "model.toml")
    eventually(lambda: complaint in error(hub))
    assert serves(hub, 1)


def test_a_module_that_exits(folder, hub, monkeypatch):
    monkeypatch.syspath_prepend(folder.root)
    (folder.root / "exiting_model.py").write_text("import sys\nsys.exit(3)\n")
    (folder.root / "broken_model.py").write_text("def model(:\n")
    folder.configure(model="exiting_model:model")
    eventually(lambda: "exiting_model calls exit(3) when it is imported" in error(hub))
    folder.configure(model="broken_model:model")
    eventually(lambda: "SyntaxError: invalid syntax (broken_model.py, line 1)" in error(hub))
    assert serves(hub, 1)


# ------------------------------------------------------------------ the system


def test_a_full_disk(program):
    """The hub writes nothing."""
    done = program(
        f"""
import resource, signal, sys
sys.path.insert(0, {os.path.dirname(sys.modules["waits"].__file__)!r})
from pathlib import Path
from tempfile import TemporaryDirectory
from hub_models import Folder
from waits import eventually
from service_streamer.hub import ModelHub

with TemporaryDirectory() as root:
    folder = Folder(Path(root))
    folder.add(1)
    folder.add(2)
    (folder.model / "2").rename(folder.root / "2")
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    try:
        (folder.root / "full").write_text("x")
    except OSError:
        print("no byte can be written")
    with ModelHub.watch(folder.root / "models", max_loaded=1) as hub:
        print(hub.predict("times", [1]))
        (folder.root / "2").rename(folder.model / "2")
        eventually(lambda: hub.predict("times", [1]) == [2])
"""
    )
    assert done.stdout == "no byte can be written\n[1]\n"


def test_a_clock_that_goes_back(hubs, factories, monkeypatch):
    times = itertools.count(2e9, -1000)
    clock = SimpleNamespace(time=lambda: next(times), monotonic=time.monotonic)
    monkeypatch.setattr(_models, "time", clock)
    hub = hubs({name: ModelSpec.factory(factories()) for name in "abc"}, max_loaded=2)
    for name in "abac":
        hub.predict(name, [1])
    states = {name: model.versions[1].state for name, model in hub.status().items()}
    assert states == {"a": "ready", "b": "unloaded", "c": "ready"}
