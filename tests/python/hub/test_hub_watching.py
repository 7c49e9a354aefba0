"""A folder of models is read when it changes, and no thread wakes up otherwise."""

import ctypes
import gc
import shutil
import subprocess
import sys
import threading

import hub_models
import pytest
from waits import LONG, eventually

from service_streamer.hub import ModelHub
from service_streamer.hub._loading import loader
from service_streamer.hub._versions import changes, watching
from service_streamer.hub._versions import folder as folders
from service_streamer.hub._versions.model_file import ModelFile


@pytest.fixture
def settled(monkeypatch):
    """Says after how many seconds a copy is taken for complete."""

    def set_seconds(seconds):
        for module in (folders, watching):
            monkeypatch.setattr(module, "SETTLED", seconds)

    return set_seconds


@pytest.fixture
def waits(monkeypatch):
    """The timeouts of the thread that watches."""
    found = []
    wait = changes.Changes.wait

    def recorded(self, timeout):
        found.append(timeout)
        return wait(self, timeout)

    monkeypatch.setattr(changes.Changes, "wait", recorded)
    return found


def model_of(hub):
    return hub.status()["times"]


def test_an_idle_folder_wakes_no_thread(folder, watched, waits, monkeypatch):
    monkeypatch.setattr(loader, "FIRST_PAUSE", 0.001)
    folder.add(1)
    folder.add(2, factor="many")
    hub = watched()
    eventually(lambda: waits and waits[-1] is None)
    assert hub.predict("times", [1]) == [1]
    (folder.model / "3").mkdir()
    (folder.model / "3" / "factor").write_text("3")
    eventually(lambda: model_of(hub).serving == 3)
    eventually(lambda: waits[-1] is None)
    assert any(waits)  # as long as the copy was new, and a version had failed a few times


def test_a_version_that_failed_is_tried_again_without_a_change(folder, watched, monkeypatch):
    monkeypatch.setattr(loader, "FIRST_PAUSE", 0.3)
    folder.add(1)
    hub = watched()
    hub.load("times")
    with monkeypatch.context() as patch:
        patch.setattr(hub_models, "factor", {}.__getitem__)
        folder.add(2)
        eventually(lambda: model_of(hub).versions.get(2, model_of(hub).versions[1]).failures)
        assert hub.predict("times", [1]) == [1]
    eventually(lambda: model_of(hub).serving == 2)


def test_a_copy_is_not_loaded_before_it_is_complete(folder, watched, settled):
    settled(3600)
    folder.add(1)
    hub = watched()
    hub.load("times")
    shutil.copytree(folder.model / "1", folder.model / "3")
    folder.add(2)  # it was renamed
    eventually(lambda: model_of(hub).serving == 2)
    assert model_of(hub).available == (1, 2)
    settled(0)
    (folder.model / "3" / "factor").write_text("3")
    eventually(lambda: model_of(hub).serving == 3)
    assert hub.predict("times", [1]) == [3]


def test_a_copy_that_failed_is_tried_again_when_its_files_stop_changing(
    folder, watched, settled, monkeypatch
):
    monkeypatch.setattr(loader, "FIRST_PAUSE", 3600)
    settled(3600)
    folder.configure("load = 'start'")
    folder.add(1)
    folder.add(2, factor="")  # half of it
    hub = watched()
    eventually(lambda: model_of(hub).versions[2].state == "failed")
    assert "changing" not in model_of(hub).versions[2].error
    (folder.model / "2" / "factor").write_text("two")
    eventually(lambda: "and it is tried again when they stop" in model_of(hub).versions[2].error)
    assert "when they stop" in model_of(hub).degraded
    failures = model_of(hub).versions[2].failures
    settled(0)
    (folder.model / "2" / "factor").write_text("2")
    eventually(lambda: model_of(hub).serving == 2)
    assert (hub.predict("times", [1]), failures) == ([2], model_of(hub).versions[2].failures)


@pytest.mark.parametrize(
    "order",
    [("", "model.toml", "1/factor"), ("1/factor", "model.toml"), ("1/factor", "1/model.toml")],
)
def test_the_files_of_a_new_model_come_in_any_order(folder, watched, settled, order):
    settled(0)
    seen = []
    hub = watched()
    apply = hub._watching._apply
    hub._watching._apply = lambda *found: (apply(*found), seen.append(found))[0]
    new = folder.root / "models" / "later"
    toml = (folder.model / "model.toml").read_text()
    for name in order:
        (new / name).parent.mkdir(parents=True, exist_ok=True)
        count = len(seen)
        if name:
            (new / name).write_text(toml if name.endswith("toml") else "3")
        else:
            new.mkdir()
        eventually(lambda count=count: len(seen) > count)
    eventually(lambda: "later" in hub.status() and hub.status()["later"].available == (1,))
    assert hub.predict("later", [1]) == [3]


def test_a_removed_folder_is_waited_for_without_a_pause(folder, watched, waits, settled):
    settled(0.3)
    folder.add(1)
    hub = watched()
    shutil.copytree(folder.model / "1", folder.model / "2")
    eventually(lambda: hub._watching._later)
    (folder.root / "models").rename(folder.root / "away")
    eventually(lambda: hub._watching._place.path == folder.root)
    threading.Event().wait(0.4)  # more than it takes to settle
    assert len(waits) < 20
    (folder.root / "away").rename(folder.root / "models")
    eventually(lambda: model_of(hub).serving == 2)


def test_a_folder_that_was_moved_away_and_back_is_watched(folder, watched, monkeypatch):
    folder.add(1)
    hub = watched()
    begun = []
    begin = hub._watching._begin
    hub._watching._begin = lambda: (begin(), begun.append(1))
    (folder.root / "models").rename(folder.root / "away")
    (folder.root / "away").rename(folder.root / "models")
    eventually(lambda: begun)
    folder.add(2)
    eventually(lambda: model_of(hub).serving == 2)


def test_a_version_that_was_read_before_its_move_was_reported_is_complete(folder, watched, settled):
    settled(3600)
    folder.add(1)
    hub = watched()
    shutil.copytree(folder.model / "1", folder.model / "2")  # as if it was renamed
    eventually(lambda: hub._watching._found["times"].changing)
    hub._watching.look(hub._watching.root / "times" / "2")
    assert model_of(hub).available == (1, 2)


def test_a_version_that_cannot_be_read_is_not_taken_for_applied(folder, watched, monkeypatch):
    folder.add(1)
    hub = watched()
    monkeypatch.setattr(hub._watching, "_look", lambda *_: {}["broken"])
    with pytest.raises(OSError, match=r"2 is published, but .*models cannot be read: .*broken"):
        hub._watching.look(hub._watching.root / "times" / "2")


def test_an_options_file_elsewhere_is_watched(folder, watched):
    (folder.root / "tuned.toml").write_text("[options]\nbatch_size = 8\n")
    folder.configure(options="options = '../../tuned.toml'")
    folder.add(1)
    hub = watched()
    before = hub._watching._found["times"]
    (folder.root / "tuned.toml").write_text("[options]\nbatch_size = 16\n")
    eventually(lambda: hub._watching._found["times"] != before)
    assert hub._watching._found["times"].file.options["options"].values == {"batch_size": 16}


def test_a_folder_with_two_paths_has_changes_at_both(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").symlink_to("a")
    found = changes.Changes()
    found.add(str(tmp_path / "a"))
    found.add(str(tmp_path / "b"))
    (tmp_path / "a" / "file").touch()
    paths = {each.folder for each in found.wait(5)}
    found._forget(str(tmp_path / "b"))
    (tmp_path / "a" / "more").touch()
    assert paths == {str(tmp_path / "a"), str(tmp_path / "b")}
    assert {each.folder for each in found.wait(5)} == {str(tmp_path / "a")}
    found.close()


def test_only_a_model_that_has_changed_is_read(folder, watched, monkeypatch):
    read = []
    real = ModelFile.read.__func__
    monkeypatch.setattr(
        ModelFile, "read", classmethod(lambda cls, path: (read.append(path), real(cls, path))[1])
    )
    folder.add(1)
    shutil.copytree(folder.model, folder.root / "models" / "more")
    hub = watched()
    assert len(read) == 2
    folder.add(2)
    eventually(lambda: model_of(hub).serving == 2)
    assert read[2:] == [folder.model / "model.toml"]


def test_a_link_to_another_folder_is_noticed(folder, tmp_path, request):
    folder.add(1)
    shutil.copytree(tmp_path / "models", tmp_path / "later")
    (tmp_path / "later" / "times" / "1").rename(tmp_path / "later" / "times" / "2")
    (tmp_path / "current").symlink_to("models")
    hub = ModelHub.watch(tmp_path / "current")
    request.addfinalizer(hub.close)
    assert model_of(hub).available == (1,)
    (tmp_path / "next").symlink_to("later")
    (tmp_path / "next").rename(tmp_path / "current")
    eventually(lambda: model_of(hub).available == (2,))


@pytest.mark.parametrize(
    ("call", "limit"),
    [("inotify_add_watch", "max_user_watches"), ("inotify_init1", "max_user_instances")],
)
def test_beyond_the_limits_of_the_system_the_folder_is_looked_at(
    folder, watched, waits, monkeypatch, caplog, call, limit
):
    class Limited:
        """The C library of a system that is at its limit."""

        def __getattr__(self, name):
            return getattr(ctypes.CDLL(None, use_errno=True), name)

    def fails(*arguments):
        ctypes.set_errno(28)
        return -1

    setattr(Limited, call, staticmethod(fails))
    monkeypatch.setattr(changes, "library", Limited)
    monkeypatch.setattr(watching, "LOOK", 0.05)
    folder.add(1)
    hub = watched()
    folder.add(2)
    eventually(lambda: model_of(hub).serving == 2)
    eventually(lambda: len(waits) > 5)
    (record,) = [each for each in caplog.records if "cannot be watched" in each.getMessage()]
    assert "No space left on device" in record.error
    assert limit in record.error
    assert "it is looked at every 0.05 s" in record.getMessage()


def test_a_module_that_is_missing_is_looked_for_again(folder, watched, monkeypatch):
    monkeypatch.setattr(watching, "LOOK", 0.05)
    monkeypatch.syspath_prepend(folder.root)
    folder.configure(model="later_model:multiply")
    folder.add(1)
    hub = watched()
    assert "No module named 'later_model'" in model_of(hub).error
    (folder.root / "later_model.py").write_text("from hub_models import multiply\n")
    eventually(lambda: not model_of(hub).error)
    assert hub.predict("times", [2]) == [2]


@pytest.mark.parametrize(
    ("mounts", "reports"),
    [
        ("1 0 8:1 / / rw - ext4 /dev/sda rw", True),
        ("1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:9 / /srv rw - nfs4 host:/ rw", False),
        ("1 0 8:1 / / rw - nfs4 host:/ rw\n2 1 0:9 / /srv/my\\040models rw - xfs x rw", True),
        ("1 0 8:1 / / rw - ext4 x rw\n2 1 0:9 / /srv/my\\040models/a rw - fuse.s3fs x rw", False),
        ("1 0 8:1 / / rw - ext4 x rw\n2 1 0:9 / /srv/\udcff rw - nfs x rw", True),
    ],
)
def test_file_systems_of_other_machines_are_looked_at(tmp_path, monkeypatch, mounts, reports):
    file = tmp_path / "mountinfo"
    file.write_text(mounts, "utf-8", "surrogateescape")
    monkeypatch.setattr(watching, "MOUNTS", file)
    assert watching.reports_changes(watching.Path("/srv/my models")) is reports


MOUNTED = """
import shutil, subprocess, sys
from pathlib import Path
sys.path[:0] = {path!r}
from hub_models import Folder
from waits import LONG, eventually
from service_streamer.hub import ModelHub

folder, place = Folder(Path({root!r})), Path({root!r}, {place!r})
folder.add(2)
shutil.copytree(place, folder.root / "other")
(folder.model / "2").rename(folder.model / "1")
with ModelHub.watch(folder.root / "models") as hub:
    print(hub.status()["times"].serving)
    subprocess.run(["mount", "-t", "tmpfs", "none", place], check=True)
    shutil.copytree(folder.root / "other", place, dirs_exist_ok=True)
    eventually(lambda: "times" in hub and hub.status()["times"].serving == 2)
    subprocess.run(["umount", place], check=True)
    eventually(lambda: "times" in hub and hub.status()["times"].serving == 1)
    print(hub.predict("times", [1]))
"""


@pytest.mark.parametrize("place", ["models", "models/times"])
def test_a_volume_that_is_mounted_later_is_noticed(tmp_path, place):
    alone = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*alone, "true"], check=False).returncode:
        pytest.skip("this machine lets no user mount anything")
    program = MOUNTED.format(path=sys.path, root=str(tmp_path), place=place)
    command = [*alone, sys.executable, "-c", program]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=2 * LONG)
    assert done.stdout == "1\n[2]\n"


def test_the_thread_of_a_forgotten_hub_ends(folder):
    before = set(threading.enumerate())
    folder.add(1)
    hub = ModelHub.watch(folder.root / "models")
    (thread,) = [each for each in set(threading.enumerate()) - before if "watch" in each.name]
    del hub
    eventually(lambda: gc.collect() is not None and not thread.is_alive())
