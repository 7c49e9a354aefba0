"""A version is tried, and appears at once and as a whole, or not at all."""

import json
import os
import shutil
import threading
import zipfile

import pytest
from waits import LONG, eventually

from service_streamer import RequestTimeout
from service_streamer._commands import check_version
from service_streamer.hub import ModelHub, ModelLoadError, ModelSpec, UnknownModel
from service_streamer.hub._versions import publishing


@pytest.fixture
def new(tmp_path):
    """A version that is not published yet."""
    new = tmp_path / "new"
    new.mkdir()
    (new / "factor").write_text("7")
    return new


@pytest.fixture
def publish(folder, monkeypatch):
    """Publishes without a trial."""
    monkeypatch.setattr(publishing, "_check", lambda *_: None)

    def publish(path, version=None):
        return publishing.publish(folder.root / "models", "times", path, version, None)

    return publish


def names(folder):
    return sorted(os.listdir(folder.model))


def test_a_hub_serves_what_it_has_published(folder, watched, new):
    folder.add(4)
    hub = watched()
    assert hub.predict("times", [1]) == [4]
    (new / "__pycache__").mkdir()
    (new / "link").symlink_to(new / "factor")
    assert hub.publish("times", new, timeout=LONG) == 5
    assert names(folder) == ["4", "5", "model.toml"]
    assert names_in(folder.model / "5") == ["factor", "link"]
    assert not (folder.model / "5" / "link").is_symlink()
    assert 5 in hub.status()["times"].available
    eventually(lambda: hub.status()["times"].serving == 5)
    assert hub.predict("times", [1]) == [7]


def test_the_number_of_a_version_that_serves_is_not_free(folder, watched, new, monkeypatch, caplog):
    monkeypatch.setattr(publishing, "_check", lambda *_: None)
    folder.add(1)
    hub = watched()
    assert hub.predict("times", [1]) == [1]
    shutil.rmtree(folder.model / "1")
    eventually(lambda: hub.status()["times"].available == ())
    with pytest.raises(ValueError, match="version=1: the hub still has version 1 of model 'times'"):
        hub.publish("times", new, version=1)
    folder.add(1, factor=3)  # without the hub
    eventually(lambda: hub.status()["times"].available == (1,))
    said = [each.getMessage() for each in caplog.records]
    assert sum("folder of model times@1 was replaced" in each for each in said) == 1
    shutil.rmtree(folder.model / "1")
    assert hub.publish("times", new) == 2


def test_a_trial_finds_the_options_file_of_the_root(folder, new):
    (folder.root / "models" / "tuned.toml").write_text("[options]\nbatch_size = 8\n")
    folder.configure(options="options = '../tuned.toml'")
    assert publishing.publish(folder.root / "models", "times", new, None, None) == 1


def test_a_forked_process_does_not_keep_the_lock(folder, new, publish, monkeypatch):
    kept = []
    real = publishing.fcntl.flock

    def flock(lock, kind):
        real(lock, kind)
        if kind == publishing.fcntl.LOCK_EX:
            kept.append((os.dup(lock.fileno()), os.open(lock.name, os.O_RDWR)))

    monkeypatch.setattr(publishing.fcntl, "flock", flock)
    publish(new)
    ((_, other),) = kept
    real(other, publishing.fcntl.LOCK_EX | publishing.fcntl.LOCK_NB)
    for fd in kept[0]:
        os.close(fd)


def test_a_rename_replaces_no_empty_folder(tmp_path, new, monkeypatch):
    (tmp_path / "1").mkdir()
    with pytest.raises(ValueError, match="exists already"):
        publishing._rename(new, tmp_path / "1")
    publishing._rename(new, tmp_path / "2")
    monkeypatch.setattr(publishing, "library", object)  # an old one, which cannot do that
    publishing._rename(tmp_path / "2", tmp_path / "3")
    assert names_in(tmp_path / "3") == ["factor"]


def names_in(path):
    return sorted(os.listdir(path))


@pytest.mark.parametrize(
    ("toml", "factor", "timeout", "error", "complaint"),
    [
        ("", "many", None, ModelLoadError, "model times@2 cannot be loaded: .*'many'"),
        ("warmup = [{}]", "3", None, ModelLoadError, "'int' and 'dict'"),
        ("policy = 'pinned:1'", "many", None, ModelLoadError, "model times@2 cannot be loaded"),
        ("", "3", 0.01, RequestTimeout, "was not loaded within 0.01 s"),
    ],
)
def test_a_version_that_fails_is_not_published(
    folder, new, toml, factor, timeout, error, complaint
):
    folder.add(1)
    folder.configure(toml)
    (new / "factor").write_text(factor)
    with pytest.raises(error, match=complaint):
        publishing.publish(folder.root / "models", "times", new, None, timeout)
    assert names(folder) == ["1", "model.toml"]


@pytest.mark.parametrize(
    ("body", "complaint"),
    [("os._exit(0)", "exited with code 0"), ("os.abort()", "killed by SIGABRT")],
)
def test_a_version_that_ends_its_process_is_refused(folder, new, monkeypatch, body, complaint):
    monkeypatch.syspath_prepend(folder.root)
    (folder.root / "ending_model.py").write_text(
        f"import os\ndef model(path):\n    print('its last words', flush=True)\n    {body}\n"
    )
    folder.configure(model="ending_model:model")
    with pytest.raises(ModelLoadError, match=complaint) as raised:
        publishing.publish(folder.root / "models", "times", new, None, None)
    assert "its last words" in str(raised.value.__cause__)
    assert names(folder) == ["model.toml"]


@pytest.mark.parametrize(
    ("name", "path", "version", "error", "complaint"),
    [
        ("other", "new", None, UnknownModel, "other does not exist: make it, with a model.toml"),
        ("empty", "new", None, UnknownModel, "model.toml does not exist"),
        ("../times", "new", None, ValueError, "must consist of letters"),
        ("times", "nowhere", None, FileNotFoundError, "nowhere"),
        ("times", "models", None, ValueError, "has the folder of the model in it"),
        ("times", "half", None, ValueError, "it is not complete"),
        ("times", "new", 1, ValueError, "exists already"),
    ],
)
def test_what_cannot_be_published(folder, new, name, path, version, error, complaint):
    folder.add(1)
    shutil.copytree(new, folder.root / "half")
    (folder.root / "half" / ".writing").touch()
    (folder.root / "models" / "empty").mkdir()
    with pytest.raises(error, match=complaint):
        publishing.publish(folder.root / "models", name, folder.root / path, version, None)
    assert names(folder) == ["1", "model.toml"]
    assert not any((folder.root / "models" / "empty").iterdir())


def test_a_hub_without_a_folder_publishes_nothing(hubs, new):
    with pytest.raises(UnknownModel, match="is in no folder"):
        hubs({"model": ModelSpec(sorted, batch_size=8)}).publish("model", new)


def test_publishers_wait_for_each_other(folder, new, publish, threads, monkeypatch):
    running = threading.Lock()

    def check(place, *arguments):
        assert running.acquire(blocking=False)
        threading.Event().wait(0.01)
        assert os.listdir(place) == ["times"]
        running.release()

    monkeypatch.setattr(publishing, "_check", check)
    (folder.model / ".publish" / "left").mkdir(parents=True)  # of one that was killed
    (folder.model / ".publish.lock").touch()
    for _ in range(8):
        threads.run(publish, new)
    assert sorted(threads.join()) == list(range(1, 9))
    assert names(folder) == [*"12345678", "model.toml"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("where", ["_sync", "_check"])
def test_an_interrupted_publisher_leaves_nothing(folder, new, publish, monkeypatch, where, error):
    def interrupt(*arguments):
        raise error

    monkeypatch.setattr(publishing, where, interrupt)
    with pytest.raises(type(error)):
        publish(new)
    assert names(folder) == ["model.toml"]


def test_a_version_that_came_meanwhile_is_not_replaced(folder, new, publish, monkeypatch):
    monkeypatch.setattr(publishing, "_check", lambda *_: folder.add(1))
    with pytest.raises(ValueError, match="exists already"):
        publish(new)
    assert (folder.model / "1" / "factor").read_text() == "1"


def test_a_single_file_gets_the_name_in_model_toml(folder, tmp_path, publish):
    folder.configure(model="times.pt2")
    for number, (file, name) in enumerate([("a.pt2", "times.pt2"), ("a.txt", "a.txt")], start=1):
        (tmp_path / file).write_text("weights")
        assert publish(tmp_path / file) == number
        assert names_in(folder.model / str(number)) == [name]


def test_a_version_comes_from_a_url(folder, tmp_path, new, publish):
    pytest.importorskip("fsspec")
    (new / "parts").mkdir()
    (new / "parts" / "a").write_text("a")
    with zipfile.ZipFile(tmp_path / "wrong.zip", "w") as file:
        file.writestr("../factor", "7")
    for url, found in (
        (f"file://{new}", ["factor", "parts"]),
        (f"file://{new}/factor", ["factor"]),
    ):
        number = publish(url)
        assert names_in(folder.model / str(number)) == found
    assert (folder.model / "1" / "parts" / "a").read_text() == "a"
    with pytest.raises(ValueError, match="which leaves its folder"):
        publish(f"zip://::file://{tmp_path}/wrong.zip")
    with pytest.raises(FileNotFoundError):
        publish(f"file://{new}/nowhere")
    assert names(folder) == ["1", "2", "model.toml"]


def tensor(name, data, datatype="FP64", **more):
    return {"name": name, "datatype": datatype, "shape": [len(data)], "data": data, **more}


INPUTS = [tensor("x", [1, 2.5])]


@pytest.mark.parametrize(
    ("case", "complaint"),
    [
        ({"outputs": [tensor("output", [3, 7.5])]}, None),
        ({"outputs": [{"name": "output", "data": [3, 7.501]}]}, None),
        ({"outputs": [tensor("output", [3, 7.6])], "tolerance": 0.1}, None),
        ({"outputs": []}, None),
        ({"outputs": [tensor("output", [3, 7.6])]}, "'output': value 1 is 7.5, not 7.6"),
        ({"outputs": [tensor("output", [3])]}, "has the shape [2], not [1]"),
        ({"outputs": [{"name": "output", "data": [3]}]}, "has 2 values, not 1"),
        ({"outputs": [tensor("output", [3, 7], "INT64")]}, "has the datatype FP64, not INT64"),
        ({"outputs": [tensor("other", [3])]}, "'other' is not one of the model: output"),
        ({"outputs": [], "inputs": [tensor("x", ["a"])]}, "'a' is not a value of FP64"),
        ({}, "must have inputs, outputs"),
        ({"outputs": [], "rtol": 1}, "must have inputs, outputs"),
    ],
)
def test_outputs_are_compared_with_those_that_are_expected(folder, monkeypatch, case, complaint):
    pytest.importorskip("orjson")
    said = []
    monkeypatch.setattr(check_version, "say", said.append)
    folder.add(3)
    (folder.model / "3" / "expected.json").write_text(json.dumps({"inputs": INPUTS, **case}))
    assert check_version.main(str(folder.root / "models"), "times", 3) is (complaint is None), said
    assert complaint is None or complaint in said[0]


def test_a_version_is_compared_with_its_expected_outputs(folder, new):
    pytest.importorskip("orjson")
    case = {"inputs": INPUTS, "outputs": [tensor("output", [8, 17.5])]}
    (new / "expected.json").write_text(json.dumps(case))
    with pytest.raises(ModelLoadError, match=r"value 0 is 7\.0, not 8"):
        publishing.publish(folder.root / "models", "times", new, None, None)
    assert names(folder) == ["model.toml"]


def test_a_model_of_worker_processes_is_tried_as_it_is_loaded(folder, new):
    folder.configure(model="hub_models:Multiply", options="batch_size = 8\nworker_num = 2")
    assert publishing.publish(folder.root / "models", "times", new, 3, None) == 3
    with ModelHub.watch(folder.root / "models") as hub:
        assert hub.predict("times", [1]) == [7]
