"""A version of a model brings its own code, whatever the names of its modules."""

import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import weakref

import pytest
from waits import LONG, eventually

from service_streamer.hub import ModelLoadError, NoParameters, UnknownModel, view_of

MODEL = """
import os

import preprocess
from tools.words import WORDS

class Model:
    def __init__(self, path, offset=0):
        self.path, self.offset = path, offset

    def __call__(self, batch):
        import late
        from preprocess import prepare
        assert preprocess.prepare is prepare
        return [[late.NUMBER, prepare(item) + self.offset, WORDS, os.getpid()] for item in batch]
"""
MANAGED = """
from service_streamer import ManagedModel

import preprocess

class Model(ManagedModel):
    def init_model(self, path, offset=0):
        self.path, self.offset = path, offset

    def predict(self, batch):
        import late
        from tools.words import WORDS
        return [[late.NUMBER, preprocess.prepare(item) + self.offset, WORDS, 0] for item in batch]
"""
STEPS = """
from service_streamer import StepModel

import late

class Model(StepModel):
    def init_model(self, path):
        pass

    def admit(self, items):
        return [[item, late.NUMBER] for item in items]

    def step(self, states):
        return [(number, True) for _, number in states]
"""
CODE = 'model = "model.py:Model"'


@pytest.fixture
def publish(folder):
    """Adds a version with the files of a program, of which each number is that of the version."""

    def publish(number, model=MODEL, toml=None, **files):
        new = folder.root / f"new-{number}"
        (new / "tools").mkdir(parents=True)
        contents = {
            "model.py": model,
            "preprocess.py": f"def prepare(item):\n    return item * {number}\n",
            "late.py": f"NUMBER = {number}\n",
            "tools/__init__.py": "",
            "tools/words.py": "from . import more\nfrom .more import WORDS\n",
            "tools/more.py": "import late\nWORDS = str(late.NUMBER)\n",
        }
        if toml is not None:
            contents["model.toml"] = toml
        contents |= {name.replace("_", "."): text for name, text in files.items()}
        for name, text in contents.items():
            (new / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        os.rename(new, folder.model / str(number))

    return publish


def ask(hub, number, item=10):
    (output,) = hub.predict(f"times@{number}", [item])
    return output


def serving(hub):
    return hub.status()["times"].serving


def version(hub, number):
    return hub.status()["times"].versions[number]


PLACES = {"processes": CODE, "here": f"{CODE}\nin_process = true"}


@pytest.mark.every_python
@pytest.mark.parametrize("model", [MODEL, MANAGED], ids=["a class", "managed"])
@pytest.mark.parametrize("place", PLACES)
def test_modules_of_one_name_serve_at_the_same_time(folder, publish, watched, place, model):
    folder.configure(
        f'{PLACES[place].partition(chr(10))[2]}\npolicy = "latest:2"',
        "model.py:Model",
        "batch_size = 8\nmodel_init_kwargs = { offset = 1 }",
    )
    for number in (3, 4):
        publish(number, model)
    hub = watched(workers=1)  # no version with code shares it
    before = set(sys.modules)
    answers = {number: ask(hub, number) for number in (3, 4)}
    assert {number: each[:3] for number, each in answers.items()} == {
        3: [3, 31, "3"],
        4: [4, 41, "4"],
    }
    if model is MODEL:
        pids = {each[3] for each in answers.values()}
        assert (len(pids) == 2) == (place == "processes")
        assert (os.getpid() in pids) == (place == "here")
    names = {name.partition(".")[0] for name in sys.modules.keys() - before}
    assert names.isdisjoint({"model", "preprocess", "late", "tools"})
    assert not list(folder.root.rglob("__pycache__"))


@pytest.mark.parametrize("place", PLACES)
def test_no_request_fails_when_a_version_with_other_code_takes_over(
    folder, publish, watched, threads, place
):
    folder.configure(PLACES[place].partition("\n")[2], "model.py:Model")
    publish(1)
    hub = watched()
    stop = threading.Event()

    def ask_on():
        seen = [0]
        while not stop.is_set():
            (output,) = hub.predict("times", [10], timeout=LONG)
            assert output[1] == 10 * output[0]
            assert output[0] >= seen[-1]
            seen.append(output[0])

    for _ in range(4):
        threads.run(ask_on)
    for number in (2, 3):
        publish(number)
        eventually(lambda number=number: set(hub.status()["times"].versions) == {number})
    stop.set()
    assert threads.join() == [None] * 4
    assert hub.predict("times", [10])[0][:2] == [3, 30]


@pytest.mark.parametrize("place", PLACES)
def test_a_step_model(folder, publish, watched, place):
    folder.configure(f"{PLACES[place].partition(chr(10))[2]}\nsteps = true", "model.py:Model")
    publish(3, STEPS)
    hub = watched()
    assert [*hub["times"].stream(1)] == [3]
    if place == "processes":
        folder.configure("", "model.py:Model")
        publish(4, STEPS)
        eventually(lambda: 4 in hub.status()["times"].versions)
        eventually(lambda: version(hub, 4).state == "failed")
        assert "model.py:Model has steps: set steps = true in model.toml" in version(hub, 4).error


TAKES = """
class Model:
    def __init__(self, path):
        pass

    def __call__(self, batch, parameters):
        return [parameters.get("length", 0) for _ in batch]
"""


@pytest.mark.parametrize("place", PLACES)
def test_parameters_of_requests(folder, publish, watched, place):
    more = PLACES[place].partition("\n")[2]
    folder.configure(f"{more}\nparameters = true", "model.py:Model")
    publish(3, TAKES)
    hub = watched()
    items = view_of(hub).with_parameters([1, 2], {"length": 7})
    assert hub.predict("times", items) == [7, 7]
    assert hub["times"].spec.takes_parameters
    assert hub.predict("times", [1]) == [0]
    hub.unload("times")
    publish(4, toml="parameters = false" if place == "processes" else None)
    waiting = hub.submit("times@3", items)  # for the load of the version
    assert waiting.result(LONG) == [7, 7]
    eventually(lambda: serving(hub) == 4)
    for ask_with in (hub.predict, lambda *given: hub.submit(*given).result(LONG)):
        with pytest.raises(NoParameters, match="model times@4 takes no parameters"):
            ask_with("times", items)
    hub.unload("times")
    with pytest.raises(NoParameters, match="model times@4 takes no parameters"):
        hub.predict("times", items)  # waits for the load


def test_a_version_has_its_own_model_toml(folder, publish, watched):
    """Beside the common one it has the first word; without one it is enough."""
    folder.configure("policy = 'latest:3'\nwarmup = [1]")
    folder.add(2)  # without code
    publish(3, toml=f"{CODE}\nin_process = true\n[options]\nmax_queue = 99\n")
    publish(4, toml="policy = 'latest'")
    hub = watched()
    assert ask(hub, 2) == 20
    assert ask(hub, 3)[:2] == [3, 30]
    assert hub["times@3"].stats().max_queue == 99
    with pytest.raises(ModelLoadError, match=r"4/model.toml, line 1: 'policy' is for the model"):
        ask(hub, 4)
    assert hub.predict("times", [1])[0][0] == 3
    (folder.model / "model.toml").unlink()
    shutil.rmtree(folder.model / "4")
    shutil.rmtree(folder.model / "2")
    publish(5, toml=f"{CODE}\nin_process = true\n[options]\nbatch_size = 4\n")
    eventually(lambda: serving(hub) == 5)
    assert hub["times"].stats().batch_size == 4
    shutil.rmtree(folder.model)
    eventually(lambda: "times" not in hub)


@pytest.mark.every_python
def test_modules_of_this_process_are_freed(folder, publish, watched):
    folder.configure("in_process = true", "model.py:Model")
    cyclic = "import loop\nclass Model:\n    def __init__(self, path): pass\n"
    cyclic += "    def __call__(self, batch):\n        return [loop.again() for _ in batch]\n"
    cyclic += "class Value: pass\n"
    loop = "import model\ndef again():\n    return model.Value()\n"
    publish(3, cyclic, loop_py=loop)
    hub = watched()
    (value,) = hub.predict("times", [1])
    name = type(value).__module__
    assert type(pickle.loads(pickle.dumps(value))) is type(value)
    assert sys.modules[name].__spec__.parent == name.rpartition(".")[0]
    references = [weakref.ref(sys.modules[name]), weakref.ref(type(value))]
    finders = len(sys.meta_path)
    del value
    hub.unload("times")
    assert name not in sys.modules
    assert len(sys.meta_path) == finders  # or another thread would miss one
    assert [each() for each in references] == [None, None]
    (again,) = hub.predict("times", [1])
    assert type(again).__module__ != name


BROKEN = {
    "raises": ("raise LookupError('no such word')", "LookupError: no such word"),
    "exits": ("import sys\nsys.exit(3)", r"model calls exit\(3\) when it is imported"),
    "ends": ("import os\nos._exit(3)", "exited with code 3 while loading"),
    "hangs": ("import threading\nthreading.Event().wait()", "not loaded it within 0.5 s, and were"),
    "syntax": ("def f(:", "SyntaxError"),
    "no name": ("x = 1", "has no attribute 'Model'"),
    "cyclic": ("import other", "partially initialized module"),
}


@pytest.mark.parametrize(
    ("place", "kind"),
    [("processes", kind) for kind in ("raises", "exits", "ends", "hangs")]
    + [("here", kind) for kind in BROKEN if kind not in ("ends", "hangs")],
)
def test_code_that_cannot_be_imported(folder, publish, watched, place, kind):
    code, complaint = BROKEN[kind]
    more = PLACES[place].partition("\n")[2]
    folder.configure(f"{more}\nload_timeout = 30", "model.py:Model")
    publish(1)
    hub = watched()
    hub.load("times", LONG)
    timeout = 0.5 if kind == "hangs" else 30
    toml = f"load_timeout = {timeout}"
    publish(2, code, toml, other_py="from model import missing")
    eventually(lambda: 2 in hub.status()["times"].versions)
    eventually(lambda: version(hub, 2).state == "failed")
    with pytest.raises(ModelLoadError, match=complaint):
        hub.predict("times@2", [1])
    assert (serving(hub), ask(hub, 1)[:2]) == (1, [1, 10])


@pytest.mark.every_python
@pytest.mark.parametrize("place", PLACES)
def test_a_change_of_loaded_code_is_ignored_and_said_once(folder, publish, watched, caplog, place):
    more = PLACES[place].partition("\n")[2]
    folder.configure(more, "model.py:Model")
    publish(3)
    hub = watched()
    hub.load("times")
    changed = "the code of model times@3 has changed after it was loaded"
    (folder.model / "3" / "preprocess.py").write_text("def prepare(item):\n    return 99\n")
    (folder.model / "3" / "late.py").write_text("NUMBER = 4\n")  # not imported yet
    eventually(lambda: changed in caplog.text)
    (folder.model / "3" / "weights").touch()
    folder.configure(f"{more}\npin = true", "model.py:Model")
    eventually(lambda: hub.status()["times"].pinned)
    *output, pid = ask(hub, 3)
    assert output == [3, 30, "3"]
    assert caplog.text.count(changed) == 1
    if place == "processes":  # a worker that starts again has the same code
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: pid not in [each.pid for each in hub["times"].stats().worker_processes])
        *again, other_pid = ask(hub, 3)
        assert (again, other_pid != pid) == (output, True)
    hub.unload("times")
    assert ask(hub, 3)[:3] == [4, 99, "4"]


PICKLED = """
import pickle

class Model:
    def __init__(self, path):
        with open(f"{path}/pickle", "rb") as file:
            self.values = pickle.load(file)

    def __call__(self, batch):
        import late
        from tools.words import Word
        assert isinstance(self.values[1], Word)
        assert isinstance(self.values[0], late.Value)
        return [type(self.values[0]).__name__ for _ in batch]
"""


@pytest.mark.every_python
@pytest.mark.parametrize("place", PLACES)
def test_a_pickle_that_names_a_module_of_the_version(folder, publish, watched, place):
    folder.configure(PLACES[place].partition("\n")[2], "model.py:Model")
    pickle = b"(clate\nValue\n(tRctools.words\nWord\n(tRt."
    classes = {"late_py": "class Value: pass\n", "tools/words_py": "class Word: pass\n"}
    publish(3, PICKLED, pickle=pickle, **classes)
    before = set(sys.modules)
    hub = watched()
    assert hub.predict("times", [1]) == ["Value"]
    names = {name.partition(".")[0] for name in sys.modules.keys() - before}
    assert names.isdisjoint({"late", "tools"})


def test_an_environment_in_the_folder_of_a_version(folder, publish, watched):
    """Its links lead out of the folder of the models."""
    folder.configure("", "model.py:Model")
    publish(3)
    command = [sys.executable, "-m", "venv", "--without-pip", folder.root / "venv"]
    subprocess.run(command, check=True)
    (folder.root / "venv" / "broken.py").write_text("(")
    (folder.model / "3").rename(folder.root / "3")
    (folder.root / "venv").rename(folder.root / "3" / "venv")
    (folder.root / "3" / "model.toml").write_text("python = 'venv'\n")
    (folder.root / "3").rename(folder.model / "3")
    hub = watched()
    assert ask(hub, 3)[:2] == [3, 30]
    assert hub.status()["times"].error is None


def test_a_file_with_the_name_of_a_module_that_is_imported(folder, publish, watched):
    folder.configure("", "json.py:Model")
    publish(3, json_py=MODEL)
    hub = watched()
    with pytest.raises(
        ModelLoadError, match=r"json.py cannot be imported, because a module 'json'"
    ):
        ask(hub, 3)
    folder.configure("in_process = true", "json.py:Model")
    publish(4, json_py=MODEL)
    eventually(lambda: serving(hub) == 4)
    assert ask(hub, 4)[:2] == [4, 40]


@pytest.mark.parametrize(
    ("text", "model", "options", "complaint"),
    [
        ("in_process = true", "a.b:c", "", "line 2: in_process is for code in the folder"),
        ("steps = true", "a.onnx", "", "line 2: steps is for code in the folder"),
        ("environments = 'own'", "a.py:b", "", 'must be "none" or "auto", not \'own\''),
        ("load_timeout = 0", "a.py:b", "", "load_timeout must be more than 0 seconds, not 0"),
        ("load_timeout = '1'", "a.py:b", "", "load_timeout must be a float, not '1'"),
        ("python = 'x'\nin_process = true", "a.py:b", "", "line 2: python is for worker"),
        ("environments = 'auto'", "a.pt2", "", "line 2: environments is for worker processes"),
        ("python = 'x'\nenvironments = 'auto'", "a.py:b", "", "line 2: python and environments"),
        ("", "a.py:b", 'mp_start_method = "fork"', "must be 'spawn', not 'fork'"),
        ("in_process = true", "a.py:b", "retries = 2", "ThreadedStreamer has no option"),
        ("", "a.py:b", "workers = 2", "Streamer has no option 'workers'"),
        ("", "../a.py:b", "", "line 1: model must be"),
        ("", "a.py:", "", "line 1: model must be"),
    ],
)
def test_fields_that_do_not_fit(folder, watched, text, model, options, complaint):
    folder.add(1)
    folder.configure(text, model, f"batch_size = 8\n{options}")
    hub = watched()
    with pytest.raises(UnknownModel, match=complaint):
        hub["times"]
