"""The workers of a version run with the packages that the version asks for."""

import fcntl
import os
import shutil
import subprocess
import sys
import threading
import time
import zipfile

import pytest
from scripts import run_python
from waits import LONG, eventually

from service_streamer.hub import ModelLoadError
from service_streamer.hub._versions import environments

MODEL = """
import os
import sys

import quirk

class Model:
    def __init__(self, path):
        pass

    def __call__(self, batch):
        return [[quirk.VERSION, sys.executable] for _ in batch]
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(environments.CACHE, str(tmp_path / "cache"))
    return tmp_path / "cache" / "environments"


@pytest.fixture
def wheels(tmp_path):
    """A folder with two versions of a package that disagree."""
    wheel_info = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    for number in (1, 2):
        info = f"quirk-{number}.dist-info"
        wheel = tmp_path / "wheels" / f"quirk-{number}-py3-none-any.whl"
        wheel.parent.mkdir(exist_ok=True)
        with zipfile.ZipFile(wheel, "w") as file:
            file.writestr("quirk.py", f"VERSION = {number}\n")
            about = f"Metadata-Version: 2.1\nName: quirk\nVersion: {number}\n"
            file.writestr(f"{info}/METADATA", about)
            file.writestr(f"{info}/WHEEL", wheel_info)
            file.writestr(f"{info}/RECORD", "")
    return tmp_path / "wheels"


@pytest.fixture
def publish(folder, wheels, request):
    """Adds a version that needs a version of the package, or has other files."""

    def publish(number, quirk=None, **files):
        new = folder.root / f"new-{number}"
        new.mkdir()
        given = {name.replace("_", "."): text for name, text in files.items()}
        contents = {"model.py": MODEL, **given}
        if quirk is not None:
            contents["requirements.txt"] = f"--no-index\n--find-links {wheels}\nquirk=={quirk}\n"
        for name, text in contents.items():
            (new / name).write_text(text)
        os.rename(new, folder.model / str(number))

    return publish


@pytest.fixture
def hub(folder, watched):
    """Makes a hub of versions with lists."""

    def hub(more="policy = 'latest:2'", text="environments = 'auto'", **options):
        folder.configure(f"{text}\n{more}", "model.py:Model")
        return watched(**options)

    return hub


@pytest.fixture
def uv(tmp_path, monkeypatch):
    """Puts a program in the place of uv."""

    def uv(text):
        path = tmp_path / "bin" / "uv"
        path.parent.mkdir()
        path.write_text(f"#!/bin/sh\n{text}")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")

    return uv


QUICK = f"""
echo uv "$@"
for last; do true; done
if [ "$1" = venv ]; then exec {sys.executable} -m venv --without-pip "$last"; fi
"""
"""makes an environment in which nothing is installed"""
PLAIN = MODEL.replace("import quirk", "class quirk:\n    VERSION = 0")


def ask(hub, number):
    return hub.predict(f"times@{number}", [1], timeout=LONG)[0]


def version(hub, number):
    return hub.status()["times"].versions[number]


def bare(folder, *site):
    """Make an environment without packages, and return its folder of packages."""
    command = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(command, check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    return packages


@pytest.mark.slow
def test_versions_of_one_package_serve_at_the_same_time(hub, publish, cache, threads, caplog):
    caplog.set_level("INFO", "service_streamer")
    publish(3, quirk=1)
    publish(4, quirk=2)
    hub = hub("policy = 'latest:3'")
    answers = {number: ask(hub, number) for number in (3, 4)}
    assert {number: each[0] for number, each in answers.items()} == {3: 1, 4: 2}
    assert len(list(cache.iterdir())) == 2
    assert "model times@4: made the environment for" in caplog.text
    assert "Successfully installed quirk-2" in caplog.text
    stop = threading.Event()

    def ask_on():
        while not stop.is_set():
            assert hub.predict("times", [1], timeout=LONG)[0][0] in (1, 2)

    for _ in range(4):
        threads.run(ask_on)
    publish(5, quirk=1)
    eventually(lambda: hub.status()["times"].serving == 5)
    assert ask(hub, 5) == answers[3]  # they share the interpreter
    publish(6, quirk=7)
    eventually(lambda: 6 in hub.status()["times"].versions)
    eventually(lambda: version(hub, 6).state == "failed")
    stop.set()
    assert threads.join() == [None] * 4
    assert hub.status()["times"].serving == 5
    assert "No matching distribution found for quirk==7" in version(hub, 6).error
    assert (version(hub, 6).progress, version(hub, 5).progress) == (None, None)


ARRAYS = """
import numpy as np
import packaging

class Model:
    def __init__(self, path):
        pass

    def __call__(self, batch):
        return [[packaging.__version__, np.__version__, item, item[::2]] for item in batch]
"""


@pytest.mark.endurance
@pytest.mark.filterwarnings("ignore:numpy.core:DeprecationWarning")  # what numpy 1 has sent
def test_numpy_1_and_2_on_both_sides(hub, publish, tmp_path):
    np = pytest.importorskip("numpy")
    lists = {3: "numpy==1.26.4\npackaging==21.3", 4: "numpy>=2\npackaging==24.2"}
    for number, text in lists.items():
        command = [sys.executable, "-m", "pip", "download", "-q", "-d", str(tmp_path / "downloads")]
        command += ["--retries", "0", "--timeout", "5", *text.split()]
        if subprocess.run(command, check=False).returncode:
            pytest.skip(f"pip has no {text.split()}")
        publish(number, model_py=ARRAYS, requirements_txt=text)
    hub = hub()
    arrays = [np.arange(10), np.arange(50_000.0), np.array(["a", None], object)]
    arrays += [
        np.array(["2026-01-01", "2026-02-01"], "M8[D]"),
        np.zeros(4, "i4,f8"),
        np.arange(4) > 1,
    ]
    for number, packaging, major in ((3, "21.3", "1"), (4, "24.2", "2")):
        hub.load(f"times@{number}")
        for array, output in zip(arrays, hub.predict(f"times@{number}", arrays), strict=True):
            assert output[0] == packaging
            assert output[1].partition(".")[0] == major
            np.testing.assert_array_equal(output[2], array)
            np.testing.assert_array_equal(output[3], array[::2])


def test_a_list_in_the_code_itself(hub, publish, uv, cache):
    uv(QUICK)
    script = '# /// script\n# dependencies = [\n#     "quirk<2",\n# ]\n# ///\n'
    publish(3, model_py=script + PLAIN)
    publish(4, model_py=script.replace("]", "") + PLAIN)
    publish(5, model_py=PLAIN)
    hub = hub("policy = 'latest:3'")
    (path,) = (made for made in [ask(hub, 3)] for made in cache.iterdir())
    assert (path / "requirements.txt").read_text() == "quirk<2"
    with pytest.raises(ModelLoadError, match=r"model\.py: "):
        ask(hub, 4)
    assert ask(hub, 5) == [0, sys.executable]


def test_an_environment_that_is_named(folder, hub, publish, tmp_path):
    (bare(folder.model / "venv") / "quirk.py").write_text("VERSION = 'named'\n")
    publish(3)
    named = hub(text="python = 'venv'")
    found, python = ask(named, 3)
    assert (found, python) == ("named", str(folder.model / "venv" / "bin" / "python"))
    folder.configure("python = 'nowhere'", "model.py:Model")
    publish(4)
    eventually(lambda: 4 in named.status()["times"].versions)
    eventually(lambda: version(named, 4).state == "failed")
    assert "nowhere cannot run a worker" in version(named, 4).error
    assert "not found" in version(named, 4).error


OTHER = """
import struct, os
def main(fd, *_):
    os.write(fd, {hello!r})
    os.read(fd, 100)
"""


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        (None, "another version of service-streamer-ng"),
        ("raise ImportError('built for another system')", "built for another system"),
        ("", "No module named 'service_streamer._processes'"),
    ],
)
def test_an_environment_with_another_version_of_this_package(folder, hub, publish, code, complaint):
    package = bare(folder.model / "venv") / "service_streamer"
    package.mkdir()
    (package / "__init__.py").write_text(code or "")
    if code is None:
        (package / "_processes").mkdir()
        (package / "_processes" / "__init__.py").touch()
        (package / "_processes" / "worker_main.py").write_text(OTHER.format(hello=hello_of(99)))
    publish(3)
    hub = hub(text="python = 'venv'")
    with pytest.raises(ModelLoadError, match=complaint):
        ask(hub, 3)


def hello_of(protocol):
    """The first message of a worker, for another protocol."""
    import socket

    from service_streamer import _core

    ours, theirs = socket.socketpair()
    link = _core.WorkerLink(theirs.detach(), False)
    thread = threading.Thread(target=link.receive_setup)
    thread.start()
    sent = bytearray(ours.recv(1000))
    ours.close()
    thread.join(LONG)
    sent[-12] = protocol
    return bytes(sent)


def test_an_environment_of_another_python(folder, hub, publish, monkeypatch):
    monkeypatch.setattr(
        environments, "CHECK", environments.CHECK.replace(".cpython-", ".cpython-2")
    )
    bare(folder.model / "venv")
    publish(3)
    hub = hub(text="python = 'venv'")
    with pytest.raises(
        ModelLoadError, match="not installed there, and that of this process is for"
    ):
        ask(hub, 3)


def test_a_folder_that_cannot_be_written(hub, publish, monkeypatch):
    monkeypatch.setenv(environments.CACHE, "/proc/self")
    publish(3, quirk=1)
    hub = hub()
    with pytest.raises(ModelLoadError, match=r"requirements\.txt cannot be made") as caught:
        ask(hub, 3)
    assert environments.CACHE in str(caught.value)


def test_a_lock_of_another_process(hub, publish, uv, caplog):
    caplog.set_level("INFO", "service_streamer")
    uv(QUICK)
    publish(3, quirk=1, model_py=PLAIN)
    watched = hub()
    environment = watched._models["times"].versions[3].spec.environment
    environment.path.mkdir(parents=True)
    lock = os.open(environment.path, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    (environment.path / "rest").touch()  # of an attempt that was interrupted
    future = watched.submit("times", [1], timeout=LONG)
    eventually(lambda: "waits for another process" in (version(watched, 3).progress or ""))
    os.close(lock)
    assert future.result() == [[0, environment.python]]
    assert not (environment.path / "rest").exists()
    required = watched._models["times"].folders[3] / "requirements.txt"
    assert f"uv pip install --python {environment.python} -r {required}" in caplog.text


def test_a_forked_process_does_not_keep_a_lock(tmp_path):
    lock = environments._open(tmp_path)
    fcntl.flock(lock, fcntl.LOCK_EX)
    copy = os.dup(lock)  # as a forked process has it
    environments._unlock(lock)
    other = environments._open(tmp_path)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)
    os.close(copy)


def test_a_list_that_is_changed_while_it_is_installed(hub, publish, uv):
    uv(QUICK + """if [ "$1" = pip ]; then echo "# more" >> "$last"; fi\n""")
    publish(3, quirk=1, model_py=PLAIN)
    with pytest.raises(ModelLoadError, match="the list was changed while it was installed"):
        ask(hub(), 3)


def test_environments_that_are_not_used_are_removed(hub, publish, uv, cache):
    uv(QUICK)
    publish(3, quirk=1, model_py=PLAIN)
    watched = hub()
    ask(watched, 3)
    (used,) = cache.iterdir()
    long_ago = time.time() - 2 * environments.UNUSED
    os.utime(used / environments.READY, (long_ago, long_ago))
    old = shutil.copytree(used, cache / "old", symlinks=True)
    os.utime(old / environments.READY, (long_ago, long_ago))
    publish(4, quirk=2, model_py=PLAIN)
    eventually(lambda: not old.exists())
    assert used.exists()


def test_a_hub_that_is_closed_ends_what_it_has_begun(hub, publish, uv, tmp_path):
    started = tmp_path / "started"
    os.mkfifo(started)
    uv(f"echo one line\necho > {started}\nexec sleep 1000\n")
    publish(3, quirk=1)
    hub = hub("load = 'start'")
    started.read_text()
    eventually(lambda: version(hub, 3).progress == "one line")
    begun = time.monotonic()
    hub.close(drain=False)
    assert time.monotonic() - begun < LONG


def test_an_environment_is_made_under_gevent(folder, publish, uv):
    pytest.importorskip("gevent")
    uv(QUICK)
    publish(3, quirk=1, model_py=PLAIN)
    folder.configure("environments = 'auto'", "model.py:Model")
    done = run_python(
        f"""
        from gevent import monkey; monkey.patch_all()
        from service_streamer.hub import ModelHub
        with ModelHub.watch({str(folder.root / "models")!r}) as hub:
            print(hub.predict("times", [1], timeout={LONG})[0][0])
        """
    )
    assert done.stdout == "0\n"


@pytest.mark.parametrize(
    ("kind", "text", "is_local"),
    [
        ("requirements.txt", "a==1\nb[c]>=2 # ./x\n--index-url https://a/b\n-f /abs", False),
        ("requirements.txt", "-r more.txt", True),
        ("requirements.txt", "./a-1-py3-none-any.whl", True),
        ("requirements.txt", "-e .", True),
        ("requirements.txt", ".[gpu]", True),
        ("requirements.txt", "-r more.in", True),
        ("requirements.txt", "a-1.tar.bz2", True),
        ("script", "a @ https://b/c.whl", False),
        ("uv.lock", 'source = { virtual = "." }\nsource = { registry = "https://a" }', False),
        ("uv.lock", 'source = { path = "wheels/a.whl" }', True),
    ],
)
def test_lists_with_files_are_not_shared(tmp_path, kind, text, is_local):
    one, two = (environments.Environment(tmp_path / name, "", kind, text) for name in "ab")
    assert (one.path != two.path) == is_local
