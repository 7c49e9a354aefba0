"""Versions of a model take over without a failed request."""

import shutil
import threading

import pytest
from hub_models import GATE
from waits import LONG, eventually

import service_streamer.torch
from service_streamer.hub import ModelHub, ModelLoadError, UnknownModel


@pytest.fixture
def hub(folder, watched):
    folder.add(1)
    return watched()


def serving(hub):
    return hub.status()["times"].serving


def state(hub, number):
    version = hub.status()["times"].versions.get(number)
    return None if version is None else version.state


def error(hub):
    return hub.status()["times"].error or ""


def test_the_newest_version_serves(folder, watched):
    for number in (2, 10, 9):
        folder.add(number)
    hub = watched()
    assert hub.predict("times", [1]) == [10]
    with pytest.raises(UnknownModel, match="no version or label '9'; its versions are 10"):
        hub["times@9"]


def test_a_new_version_takes_over_when_it_is_loaded(folder, hub):
    assert hub.predict("times", [1]) == [1]
    folder.add(2, gate=True)
    eventually(lambda: state(hub, 2) == "loading")
    assert hub.predict("times", [1]) == [1]
    GATE.set()
    eventually(lambda: serving(hub) == 2)
    assert hub.predict("times", [1]) == [2]
    eventually(lambda: state(hub, 1) is None)


def test_no_request_fails_when_versions_change(folder, hub, threads):
    stop = threading.Event()

    def ask():
        seen = [0]
        while not stop.is_set():
            (output,) = hub.predict("times", [1])
            assert output >= seen[-1]
            seen.append(output)

    for _ in range(4):
        threads.run(ask)
    for number in (2, 3, 4):
        folder.add(number)
        eventually(lambda number=number: set(hub.status()["times"].versions) == {number})
    stop.set()
    assert threads.join() == [None] * 4
    assert hub.predict("times", [1]) == [4]


def test_a_version_that_cannot_be_loaded_never_takes_over(folder, hub, caplog):
    hub.load("times")
    folder.add(2, factor="many")
    eventually(lambda: state(hub, 2) == "failed")
    assert "invalid literal for int" in hub.status()["times"].versions[2].error
    assert hub.predict("times", [1]) == [1]
    eventually(lambda: "times@2 cannot be loaded" in caplog.text)  # it is logged after that
    with pytest.raises(ModelLoadError):
        hub.predict("times@2", [1])
    folder.add(3)
    eventually(lambda: serving(hub) == 3)
    assert hub.predict("times", [1]) == [3]


MANAGED = {"model": "hub_models:Multiply", "options": 'batch_size = 8\nmp_start_method = "fork"'}
SHARED = {"model": "hub_models:Multiply"}
KINDS = {"a function": ({}, {}), "processes": (MANAGED, {}), "shared": (SHARED, {"workers": 1})}


@pytest.mark.parametrize("load", ["first_request", "start"])
@pytest.mark.parametrize("kind", KINDS)
def test_after_a_restart_the_newest_version_that_loads_serves(folder, watched, kind, load):
    model, options = KINDS[kind]
    for number, factor in ((3, None), (4, None), (5, "many"), (6, "more")):
        folder.add(number, factor)
    folder.configure(f"load = {load!r}", **model)
    hub = watched(**options)
    if load == "start":
        eventually(lambda: not hub._unready())
    assert hub.predict("times", [1], timeout=LONG) == [4]
    hub.load("times", LONG)
    states = {4: "ready", 5: "failed", 6: "failed"}  # a pause later they are tried again
    eventually(lambda: {number: state(hub, number) for number in states} == states)
    status = hub.status()["times"]
    assert (status.serving, status.earlier) == (4, 3)
    assert set(status.versions) == set(states)
    assert "invalid literal for int() with base 10: 'more'" in status.degraded
    assert hub.predict("times@4", [1]) == [4]
    with pytest.raises(ModelLoadError, match="'many'"):
        hub.predict("times@5", [1])
    folder.add(7)
    eventually(lambda: serving(hub) == 7)
    assert hub.status()["times"].degraded is None


def test_requests_of_all_sorts_that_wait_get_the_version_that_loads(folder, watched, threads):
    folder.add(3, gate=True)
    folder.add(4, factor="many")
    hub = watched()
    calls = [lambda: hub.predict("times", [1]), lambda: hub.submit("times", [1]).result(LONG)]
    calls += [lambda: hub.load("times", LONG), lambda: hub["times"].wait_ready(LONG)]
    for call in calls:
        threads.run(call)
    eventually(lambda: state(hub, 3) == "loading")
    assert hub.status()["times"].versions[3].error is None
    GATE.set()
    assert threads.join() == [[3], [3], None, None]


def test_if_no_version_loads_the_error_is_that_of_the_newest(folder, watched):
    folder.add(3, factor="few")
    folder.add(4, factor="many")
    hub = watched()
    for _ in range(2):
        with pytest.raises(ModelLoadError, match=r"times@4 cannot be loaded.*'many'"):
            hub.predict("times", [1])
    with pytest.raises(ModelLoadError, match=r"'few'|'many'"):
        hub.load("times", LONG)
    folder.add(2)  # an older one is as good
    eventually(lambda: serving(hub) == 2)
    assert hub.predict("times", [1]) == [2]


@pytest.mark.parametrize(
    ("policy", "serves", "versions"),
    [("latest:2", 4, {3, 4, 5}), ("latest:9", 4, {2, 3, 4, 5}), ("pinned:5", None, {5})],
)
def test_policies_with_a_version_that_cannot_be_loaded(folder, watched, policy, serves, versions):
    for number in (2, 3, 4):
        folder.add(number)
    folder.add(5, factor="many")
    folder.configure(f"policy = {policy!r}")
    hub = watched()
    if serves is None:  # a pinned version has no substitute
        with pytest.raises(ModelLoadError, match="times@5"):
            hub.predict("times", [1])
    else:
        assert hub.predict("times", [1]) == [serves]
    assert set(hub.status()["times"].versions) == versions


def test_of_two_new_versions_the_one_that_loads_takes_over(folder, hub):
    hub.load("times")
    (folder.model / "3").mkdir()  # incomplete, and noticed with the next one
    folder.add(2)
    eventually(lambda: serving(hub) == 2)
    eventually(lambda: state(hub, 3) == "failed")
    assert hub.rollback("times", LONG) == 1
    assert hub.predict("times", [1]) == [1]


def test_a_version_that_loaded_once_and_does_not_again_is_replaced(folder, watched):
    folder.configure('load = "start"')
    folder.add(1)
    folder.add(2)
    hub = watched()
    assert hub.predict("times", [1]) == [2]
    (folder.model / "2" / "factor").write_text("many")
    hub.unload("times")
    assert hub.predict("times", [1]) == [1]
    (folder.model / "2" / "factor").write_text("7")
    eventually(lambda: serving(hub) == 2)
    assert hub.predict("times", [1]) == [7]


@pytest.mark.parametrize("earlier", [True, False])
def test_a_version_that_was_half_copied_is_tried_again_when_its_files_change(
    folder, watched, earlier
):
    if earlier:
        folder.add(1)
    (folder.model / "2").mkdir()
    hub = watched()
    with pytest.raises(ModelLoadError, match="No such file"):
        hub.load("times@2", LONG)
    (folder.model / "2" / "factor").write_text("2")
    eventually(lambda: serving(hub) == 2 and state(hub, 2) == "ready")
    assert hub.predict("times", [1]) == [2]


def test_other_models_do_not_suffer_from_one_without_a_version_that_loads(folder, watched):
    folder.configure('load = "start"')
    folder.add(1)
    shutil.copytree(folder.model, folder.root / "models" / "broken")
    (folder.root / "models" / "broken" / "1" / "factor").write_text("many")
    hub = watched()
    assert hub.predict("times", [1]) == [1]
    eventually(lambda: "'many'" in hub._unready())
    (folder.root / "models" / "broken" / "1" / "factor").write_text("3")
    eventually(lambda: not hub._unready())
    assert hub.predict("broken", [1]) == [3]


def test_a_canary_that_cannot_be_loaded_is_tried_again_when_its_files_change(folder, watched):
    folder.configure("policy = 'pinned:1'")
    folder.add(1)
    folder.add(2, factor="many")
    hub = watched()
    hub.load("times")
    with pytest.raises(ModelLoadError, match="'many'"):
        hub.canary("times", version=2, share=1.0)
    assert hub.predict("times", [1]) == [1]
    (folder.model / "2" / "factor").write_text("2")
    hub.canary("times", version=2, share=1.0)
    assert hub.predict("times", [1]) == [2]
    assert hub.promote("times") == 2
    (folder.model / "2" / "factor").write_text("many")
    hub.unload("times")
    assert hub.predict("times", [1]) == [1]  # the pinned one, in place of the promoted one


def test_a_warm_up_that_raises_is_a_failure(folder, watched):
    folder.configure("warmup = [1, 2]")
    folder.add(1)
    hub = watched()
    assert hub.predict("times", [1]) == [1]
    folder.configure("warmup = [[], {}]")
    folder.add(2)
    eventually(lambda: state(hub, 2) == "failed")
    assert serving(hub) == 1


def test_incomplete_versions_are_ignored(folder, hub):
    hub.load("times")
    half = folder.model / "2"
    for name in ("x3", "4.tmp", "-5", "06"):
        shutil.copytree(folder.model / "1", folder.model / name)
    half.mkdir()
    (half / ".writing").touch()
    (half / "factor").write_text("2")
    folder.configure("policy = 'latest:3'")  # seen together with the rest, or later
    eventually(lambda: hub._models["times"].file.policy == "latest:3")
    assert set(hub.status()["times"].versions) == {1}
    (half / ".writing").unlink()
    eventually(lambda: serving(hub) == 2)


def test_rollback(folder, hub):
    with pytest.raises(UnknownModel, match="no earlier version"):
        hub.rollback("times")
    for number in (2, 3):
        hub.load("times")
        folder.add(number)
        eventually(lambda number=number: serving(hub) == number)
    assert hub.rollback("times", timeout=LONG) == 2
    assert hub.predict("times", [1]) == [2]
    assert hub.status()["times"].earlier == 1  # not 3, which has been rejected
    folder.configure("pin = true")  # a new look at the folder
    eventually(lambda: hub.status()["times"].pinned)
    assert serving(hub) == 2
    folder.add(4)
    eventually(lambda: serving(hub) == 4)


def test_policies_and_labels(folder, watched):
    for number in range(1, 6):
        folder.add(number)
    folder.configure("policy = 'latest:2'", more="[labels]\nstable = 2\n")
    hub = watched()
    assert set(hub.status()["times"].versions) == {2, 4, 5}
    assert hub.predict("times@stable", [1]) == [2]
    assert hub.predict("times@4", [1]) == [4]
    stable = hub["times@stable"]
    folder.configure("policy = 'pinned:3'", more="[labels]\nstable = 4\n")
    eventually(lambda: serving(hub) == 3)
    assert (hub.predict("times", [1]), stable.predict([1])) == ([3], [4])
    with pytest.raises(ValueError, match="'pinned:3': change it"):
        hub.rollback("times")


def test_a_managed_model_gets_its_folder(folder, watched):
    options = 'batch_size = 8\nmp_start_method = "fork"\nmodel_init_kwargs = { offset = 1 }'
    folder.configure(model="hub_models:Multiply", options=options)
    folder.add(3)
    hub = watched()
    assert hub.predict("times", [10]) == [31]
    folder.add(4)
    eventually(lambda: serving(hub) == 4)
    assert hub.predict("times", [10]) == [41]


def test_models_come_and_go(folder, hub):
    hub.load("times")
    shutil.copytree(folder.model, folder.root / "more")
    (folder.root / "more").rename(folder.root / "models" / "more")
    eventually(lambda: "more" in hub)
    assert hub.predict("more", [1]) == [1]
    handle, model = hub["times"], hub._models["times"]
    shutil.rmtree(folder.model)
    eventually(lambda: "times" not in hub and not model.versions)
    with pytest.raises(UnknownModel, match="out of service"):
        handle.predict([1])


@pytest.mark.parametrize(
    ("file", "complaint"),
    [
        ('model = "hub_models:multiply"\nmodle = 1', "line 2: unknown field 'modle'; known are"),
        ('model = "hub_models:multiply"\n[options]\n\nbatchsize = 1', "line 4: .* 'batchsize'"),
        ('model = "hub_models:multiply"\npolicy = "best"', "line 2: policy must be"),
        ('model = "hub_models:multiply"\npin = 1', "line 2: pin must be a bool"),
        ('model = "../multiply.pt2"', "line 1: model must be"),
        ('model = "no_such_module:multiply"', "ModuleNotFoundError: No module named"),
        ('model = "hub_models:multiply"', "'batch_size' is missing"),
        ("pin = true", "the field 'model' is missing"),
        ('model = "hub_models:multiply"\n[labels]\nstable = "2"', "line 3: a label is"),
        ("model = ", r"Invalid value \(at"),
    ],
)
def test_errors_of_model_toml(folder, watched, file, complaint):
    folder.add(1)
    (folder.model / "model.toml").write_text(file)
    hub = watched()
    with pytest.raises(UnknownModel, match=complaint):
        hub["times"]
    folder.configure()
    eventually(lambda: not error(hub))
    assert hub.predict("times", [1]) == [1]


@pytest.mark.parametrize(
    ("model", "more"), [("multiply", ""), ("Multiply", "[options.model_init_kwargs]\noffset = 5\n")]
)
def test_options_of_a_model_may_be_in_a_file_beside_model_toml(folder, watched, model, more):
    folder.add(1)
    found = "[options]\nbatch_size = 4\nmax_queue = 9\nthreads_per_worker = 1\n"
    (folder.model / "tuned.toml").write_text(f"{found}{more}[tuned]\n")
    folder.configure(model=f"hub_models:{model}", options="max_queue = 5\noptions = 'tuned.toml'")
    hub = watched()
    assert hub.predict("times", [1]) == [6 if more else 1]
    stats = hub["times"].stats()
    assert (stats.batch_size, stats.max_queue) == (4, 5)
    (folder.model / "tuned.toml").write_text("[options]\nbatchsize = 4\n")
    eventually(lambda: "tuned.toml, line 2: " in error(hub) and "'batchsize'" in error(hub))


def test_a_broken_model_toml_changes_nothing(folder, hub):
    hub.load("times")
    (folder.model / "model.toml").write_text("model = ")
    eventually(lambda: "Invalid value" in error(hub))
    assert hub.predict("times", [1]) == [1]


@pytest.mark.parametrize("how", ["removed", "renamed", "with its parent"])
def test_a_folder_that_is_made_again_is_noticed(folder, tmp_path, request, how):
    folder.root = tmp_path / "parent"
    models = tmp_path / "parent" / "models"
    models.mkdir(parents=True)
    folder.model = models / "times"
    shutil.copytree(tmp_path / "models" / "times", folder.model)
    folder.add(1)
    hub = ModelHub.watch(models)
    request.addfinalizer(hub.close)
    assert hub.predict("times", [1]) == [1]
    gone = models.parent if how == "with its parent" else models
    for number in (2, 3):  # and the new one is watched, too
        new = tmp_path / f"new-{number}"
        shutil.copytree(tmp_path / "models", new / "models")
        if how == "renamed":
            gone.rename(tmp_path / f"old-{number}")
        else:
            shutil.rmtree(gone)
        (new if gone == models.parent else new / "models").rename(gone)
        folder.add(number)
        eventually(lambda number=number: "times" in hub and serving(hub) == number)


def test_links_that_leave_the_folder_are_refused(folder, watched, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "factor").write_text("6")
    folder.add(1)
    (folder.model / "2").symlink_to(outside)
    (folder.model / "3").mkdir()
    (folder.model / "3" / "factor").symlink_to(outside / "factor")
    (folder.model / "4").symlink_to(folder.model / "1")  # stays inside
    (folder.root / "models" / "other").symlink_to(outside)
    (outside / "model.toml").write_text('model = "hub_models:multiply"')
    hub = watched()
    assert hub.predict("times", [1]) == [1]
    assert serving(hub) == 4
    assert error(hub).count("leaves the folder of the models") == 2
    assert "leaves the folder" in hub.status()["other"].error


def test_a_model_file_becomes_a_native_model(folder, watched, monkeypatch):
    def native(path, device):
        factor = int((path.parent / "factor").read_text())
        return lambda batch: [(path.name, device, factor * item) for item in batch]

    monkeypatch.setattr(service_streamer.torch, "NativeModel", native)
    folder.configure(model="times.pt2", more='[native]\ndevice = "cpu"\n')
    folder.add(3)
    assert watched().predict("times", [2]) == [("times.pt2", "cpu", 6)]


def test_declared_tensors_are_those_of_the_loaded_model(folder, hub):
    hub.load("times")
    folder.configure("pin = true", more='[inputs.x]\ndatatype = "INT64"\n')
    eventually(lambda: hub.status()["times"].pinned)
    assert not hub["times"].spec.inputs
    hub.unload("times")
    hub.load("times")
    assert list(hub["times"].spec.inputs) == ["x"]
