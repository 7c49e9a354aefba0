"""The workers of a version run with the packages that the version asks for."""

import fcntl
import os
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

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


def bare(folder, python=sys.executable):
    """Make an environment without packages, and return its folder of packages."""
    command = [python, "-m", "venv", "--without-pip", str(folder)]
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


def test_a_list_in_the_code_itself_that_only_uv_can_read(hub, publish, uv, caplog, monkeypatch):
    caplog.set_level("INFO", "service_streamer")
    script = "# /// script\n# dependencies = []\n# [tool.uv]\n# exclude-newer = '{}'\n# ///\n"
    for number in (3, 4):
        publish(number, model_py=script.format(f"2026-01-0{number}") + PLAIN)
    publish(5, model_py="# /// script\n# dependencies = 'quirk'\n# ///\n" + PLAIN)
    monkeypatch.setenv("PATH", "/bin")
    hub = hub("policy = 'latest:3'")
    with pytest.raises(ModelLoadError, match=r"with a table \[tool\.uv\] needs the program uv"):
        hub.load("times@3")
    uv(QUICK)
    for number in (3, 4):
        hub.load(f"times@{number}")
    assert ask(hub, 3) != ask(hub, 4)
    assert "3/model.py" in caplog.text
    with pytest.raises(ModelLoadError, match="dependencies must be a list of strings"):
        ask(hub, 5)


def test_an_environment_that_is_named(folder, hub, publish, monkeypatch):
    (bare(folder.model / "venv") / "quirk.py").write_text("VERSION = 'named'\n")
    publish(3)
    # Python 3.10 has not all options of later ones.
    monkeypatch.setattr(subprocess, "_args_from_interpreter_flags", lambda: ["-B", "-P"])
    python = folder.model / "venv" / "bin" / "python"
    old = python.with_name("old")
    old.write_text(f'#!/bin/sh\ntest "$2" = -P && exit 2\nexec {python} "$@"\n')
    old.chmod(0o755)
    named = hub(text="python = 'venv/bin/old'")
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


@pytest.mark.parametrize("file", ["requirements.txt", "base.txt"])
def test_a_list_that_is_changed_while_it_is_installed(hub, publish, uv, file):
    uv(QUICK + f"""if [ "$1" = pip ]; then echo "# more" >> {file}; fi\n""")
    publish(3, model_py=PLAIN, requirements_txt="-r base.txt", base_txt="quirk")
    with pytest.raises(ModelLoadError, match="the list was changed after it was read"):
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
    hub = hub("policy = 'latest:2'\nload = 'start'", load_threads=1)
    started.read_text()
    eventually(lambda: version(hub, 3).progress == "one line")
    publish(4, model_py=PLAIN)
    eventually(lambda: hub.status()["times"].serving == 4)  # other loads go on
    begun = time.monotonic()
    hub.close(drain=False)
    assert time.monotonic() - begun < LONG


@pytest.mark.slow
def test_an_environment_that_takes_too_long(hub, publish, uv):
    uv("echo one line\necho error: no answer\nexec sleep 1000\n")
    publish(3, quirk=1)
    hub = hub("load_timeout = 2")
    late = r"took longer than load_timeout in model.toml \(2 s\): error: no answer"
    with pytest.raises(ModelLoadError, match=late):
        ask(hub, 3)


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
    ("text", "file", "is_shared"),
    [
        ("a==1\nb[c]>=2 # other\n--index-url https://a/other\n-f /usr", "other", True),
        ("a @ https://b/other", "other", True),
        ("-r more.txt", "more.txt", True),
        ("-rmore.in", "more.in", True),
        ("--constraint=a/more.txt", "a/more.txt", True),
        ("-c \\\n'more of it.txt' # it's here", "more of it.txt", True),
        ("-r more.txt\n-r nested", "deep/more.txt", True),
        ("./a-1-py3-none-any.whl", "a-1-py3-none-any.whl", True),
        ("a @ file:a-1.tar.bz2", "a-1.tar.bz2", True),
        ("-e .", "setup.py", False),
        (".[gpu]", "setup.py", False),
        ("--find-links wheels", "wheels/a-1-py3-none-any.whl", False),
    ],
)
def test_lists_with_the_same_files_are_shared(tmp_path, text, file, is_shared):
    def path(folder, contents):
        (tmp_path / folder / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "nested").write_text("--constraint nested -r deep/more.txt")
        (tmp_path / folder / "requirements.txt").write_text(text)
        (tmp_path / folder / file).write_text(contents)
        return environments.Environment.of(tmp_path / folder, "").path

    one = path("one", "1")
    assert (path("two", "1") == one) is is_shared
    if file != "other" and is_shared:
        assert path("two", "2") != one


@pytest.mark.parametrize(
    ("text", "is_shared"),
    [
        ('source = { virtual = "." }\nsource = { registry = "https://a" }', True),
        ('source = { path = "wheels/a.whl" }', False),
    ],
)
def test_locks_without_paths_are_shared(tmp_path, text, is_shared):
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        (folder / "uv.lock").write_text(text)
        (folder / "pyproject.toml").touch()
    one, two = (environments.Environment.of(tmp_path / name, "").path for name in ("one", "two"))
    assert (one == two) is is_shared


@pytest.mark.parametrize("way", ["owner", "mode"])
def test_a_folder_that_another_user_may_change_is_refused(hub, publish, cache, monkeypatch, way):
    cache.mkdir(parents=True)
    if way == "mode":
        cache.chmod(0o777)
    elif os.geteuid() == 0:
        os.chown(cache, 12345, -1)
    else:
        monkeypatch.setattr(environments.os, "geteuid", lambda: 12345)
    publish(3, quirk=1)
    with pytest.raises(ModelLoadError, match="others could put code there: let SERVICE_STREAMER"):
        ask(hub(), 3)


def test_a_list_outside_is_read_again_after_a_failure(folder, hub, publish, uv):
    base = folder.model / "base.txt"
    base.write_text("bad")
    uv(f"if grep bad {base}; then exit 1; fi\n{QUICK}")
    publish(3, model_py=PLAIN, requirements_txt="-r ../base.txt")
    hub = hub("load = 'start'")
    eventually(lambda: "cannot be made: bad" in (version(hub, 3).error or ""))
    base.write_text("good")
    eventually(lambda: version(hub, 3).state == "ready")


def others():
    """The interpreters of other versions of Python in which this package is."""
    made = [ROOT / ".venv", *sorted((ROOT / "build").glob("venv-*"))]
    for folder in made:
        (*site,) = folder.glob("lib/python*")
        if (folder / ".installed").exists() and site[0].name != OWN:
            yield folder


ROOT = Path(__file__).parents[3]
OWN = "python{}.{}".format(*sys.version_info)
OTHER_PYTHON = """
import sys
import numpy as np

class Model:
    def __init__(self, path):
        pass

    def __call__(self, batch):
        return [[sys.version_info[1], item, item[::2]] for item in batch]
"""


@pytest.mark.every_python
@pytest.mark.slow
def test_another_version_of_python(folder, hub, publish, threads):
    """One of its versions serves beside one of this Python, and takes over under load."""
    np = pytest.importorskip("numpy")
    python = next(others(), None)
    if python is None:
        pytest.skip("there is no environment of another Python: make test-pythons makes some")
    publish(3, model_py=OTHER_PYTHON)
    hub = hub(text="")
    arrays = [np.arange(10), np.array(["a", None], object), np.zeros(4, "i4,f8")]
    arrays += [np.array(["2026-01-01", "2026-02-01"], "M8[D]"), np.arange(500_000.0)]

    def ask_on():
        seen = set()
        while len(seen) < 2:
            for array, output in zip(arrays, hub.predict("times", arrays), strict=True):
                seen.add(output[0])
                np.testing.assert_array_equal(output[1], array)
                np.testing.assert_array_equal(output[2], array[::2])
        return seen

    for _ in range(4):
        threads.run(ask_on)
    toml = f"python = '{python}'"
    publish(4, model_py=OTHER_PYTHON, model_toml=toml)
    (other,) = python.glob("lib/python*")
    minors = {sys.version_info[1], int(other.name.rpartition(".")[2])}
    assert threads.join() == [minors] * 4
    bare(folder.model / "venv", python=python / "bin" / "python")
    publish(5, model_py=OTHER_PYTHON, model_toml="python = '../venv'")
    eventually(lambda: 5 in hub.status()["times"].versions)
    with pytest.raises(ModelLoadError, match="not installed there, and that of this process is"):
        hub.load("times@5")
    assert hub.status()["times"].serving == 4
