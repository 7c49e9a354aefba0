"""Environments of Python packages for the workers of a version, made from the list in its folder.

An environment lies in the cache folder, and its name is a digest of the list, of the files that it
names, and of this Python. So versions with the same list share one. A process that makes an
environment locks its folder, and a file `READY` in it is written last. Processes that use one lock
it, too, so none removes it.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import fcntl
import hashlib
import itertools
import os
import re
import select
import shlex
import shutil
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path

from ..._base.errors import StreamerClosed
from ..._base.messages import see
from ..._base.toml import TomlFile
from ..._processes.own_package import CHECK
from ..._processes.process import Process
from ..._processes.start import closing_inheritable, interpreter
from ..._waiting.threads import Condition, original
from ..._waiting.timeouts import countdown

CACHE = "SERVICE_STREAMER_CACHE"
"""the variable that names the cache folder"""
READY = ".ready"
UNUSED = 30 * 24 * 3600.0  # s, after which an environment is removed
GRACE = 5.0  # s for a process to end after it was killed
PAUSE = 0.2  # s between two looks at a lock of another process

_SCRIPT = re.compile(r"^# /// script$\s(?P<content>(^#(| .*)$\s)+)^# ///$", re.MULTILINE)
"""that of PEP 723"""

_NAMES = re.compile(r"-[rcef]|--[\w-]+=|\S*file:(//)?")
"""what may stand before the name of a file in a list"""

_LISTS = re.compile(r"-[rc]|--(requirement|constraint)\b")
"""the options that name another list"""

_FILES = {
    "uv.lock": ("uv.lock", "pyproject.toml"),
    "requirements.txt": ("requirements.txt",),
}
"""the files of a list, by the one that must be there"""

_EXITED = "service-streamer: exit code "
_REPORTING = f"""cd "$0" && "$@"; printf '\\n{_EXITED}%s\\n' "$?\""""
"""a command of the shell; other code of this process may collect the exit code, as gevent does"""

Begin = Callable[["Making"], None]
"""called with what is being made; raises if the hub is closed"""


@dataclasses.dataclass(frozen=True)
class Environment:
    """The interpreter of the workers of a version, and how it is made if it is missing."""

    folder: Path
    """of the version"""
    given: str = ""
    """the interpreter that model.toml names; empty: the one of the list"""
    model: str = ""
    """the name of the file that may have a list inside; another name has none"""
    timeout: float | None = None
    """seconds in which it has to be made; None: no limit"""
    kind: str = ""
    """what has the list: "uv.lock", "requirements.txt", "script", or "script for uv\""""
    packages: tuple[str, ...] = ()
    """the texts of the list, and what it names"""

    @classmethod
    def of(cls, folder: Path, model: str, timeout: float | None = None) -> Environment | None:
        """Return the environment for the list in a folder; None: there is no list.

        Args:
            folder: of the version.
            model, timeout: the fields.

        Raises:
            OSError: a file cannot be read.
            ValueError: the list is invalid.
        """
        for kind, files in _FILES.items():
            if (folder / kind).exists():
                texts = [(folder / each).read_text(encoding="utf-8") for each in files]
                packages = _whole(folder, kind, texts)
                return cls(folder, "", model, timeout, kind, packages)
        if not model.endswith(".py"):
            return None
        found = _SCRIPT.search((folder / model).read_text(encoding="utf-8"))
        if found is None:
            return None
        text = "\n".join(line[2:] for line in found["content"].splitlines())
        script = TomlFile.of(folder / model, text).values
        listed = script.get("dependencies", [])
        if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
            raise ValueError(f"{folder / model}: dependencies must be a list of strings")
        kind, dependencies = "script", "\n".join(listed)
        packages = _whole(folder, kind, [dependencies])
        if "uv" in script.get("tool", ()):  # such as an index
            kind, packages = "script for uv", (*packages, text)
        return cls(folder, "", model, timeout, kind, packages)

    @property
    def path(self) -> Path:
        """The folder of the environment."""
        parts = [self.kind, *self.packages, sys.version, sys.base_prefix]
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
        return Path(_cache(), "environments", digest).absolute()

    @property
    def is_made(self) -> bool:
        """True if it need not be made."""
        return bool(self.given) or (self.path / READY).exists()

    @property
    def python(self) -> str:
        """The interpreter."""
        return self.given or str(self.path / "bin" / "python")

    def prepare(self, begin: Begin, tell: Callable[[str], None]) -> Callable[[], None]:
        """Make the environment if it is missing, and check it. Blocks.

        Args:
            begin: called with what is being made, before that.
            tell: called with a line about the progress.

        Returns:
            A function that lets other processes remove the environment.

        Raises:
            RuntimeError: it cannot be made in time, no worker can run there, or another user could
                change it. The message says why.
            StreamerClosed: the hub is closed.
        """
        making = Making(self.path, tell, self.timeout)
        begin(making)
        release = _nothing if self.given else self._locked(making)
        try:
            making.run([self.python, "-c", CHECK], f"{self.python} cannot run a worker", bare=True)
        except BaseException:
            release()
            raise
        return release

    def _locked(self, making: Making) -> Callable[[], None]:
        """Return the function that unlocks the environment, which is made if it is missing."""
        try:
            while True:
                lock = _open(self.path)
                try:
                    _check_owners(self.path)
                    making.lock(lock, fcntl.LOCK_SH)
                    if not (self.path / READY).exists():
                        making.lock(lock, fcntl.LOCK_EX)
                        if not (self.path / READY).exists() and _is_open(lock, self.path):
                            self._make(making)
                            _prune(self.path.parent)
                        making.lock(lock, fcntl.LOCK_SH)
                    if (self.path / READY).exists() and _is_open(lock, self.path):
                        break
                except BaseException:
                    _unlock(lock)
                    raise
                _unlock(lock)  # another process has removed it meanwhile
        except OSError as error:
            raise RuntimeError(
                f"the environment for {self._list} cannot be made ({error}): let {CACHE} name a "
                "folder that can be written, or make the environment before, and name it with "
                "python= in model.toml"
            ) from error
        with contextlib.suppress(OSError):  # read-only
            os.utime(self.path / READY)
        return lambda: _unlock(lock)

    @property
    def _list(self) -> str:
        is_file = self.kind in _FILES
        return str(self.folder / self.kind) if is_file else f"the script in {self.folder}"

    def _make(self, making: Making) -> None:
        begun = time.monotonic()
        making.tell(f"makes an environment for {self._list}")
        for each in self.path.iterdir():  # what an attempt that was interrupted has left
            shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
        uv = shutil.which("uv")
        failed = f"the environment for {self._list} cannot be made"
        required = self.folder / "requirements.txt"
        if self.kind == "script":
            required = self.path / "requirements.txt"
            required.write_text(self.packages[0], encoding="utf-8")
        elif self.kind == "script for uv":
            required = self.folder / self.model
        if uv is not None:  # "--allow-existing": the folder is there, because it is locked
            command = [uv, "venv", "--allow-existing", "--python", interpreter()]
            making.run([*command, str(self.path)], failed)
            command = [uv, "pip", "install", "--python", self.python, "-r", str(required)]
            if self.kind == "uv.lock":
                command = [uv, "sync", "--frozen", "--no-dev", "--no-install-project"]
        elif "uv" in self.kind:
            what = self.kind.replace("script for uv", "script with a table [tool.uv]")
            raise RuntimeError(f"{failed}: a {what} needs the program uv: pip install uv")
        else:
            # This Python's own pip takes less than a second. To install another one takes more.
            bare = ["--without-pip"] if (has_pip := _has_pip()) else []
            making.run([interpreter(), "-m", "venv", *bare, str(self.path)], failed)
            pip = [interpreter(), "-m", "pip", "--python", self.python]
            command = [*(pip if has_pip else [self.python, "-m", "pip"]), "install"]
            command += ["--no-input", "--disable-pip-version-check", "-r", str(required)]
        making.run(command, failed, self.folder)
        if Environment.of(self.folder, self.model, self.timeout) != self:
            raise RuntimeError(f"{failed}: the list was changed after it was read")
        (self.path / READY).touch()
        making.tell(f"made the environment for {self._list} in {time.monotonic() - begun:.1f} s")


class Making:
    """The programs that make an environment. `close` ends them; any thread may call it.

    Args:
        path: of the environment.
        tell: called with a line about the progress.
        timeout: seconds for all of it. None: no limit.
    """

    def __init__(self, path: Path, tell: Callable[[str], None], timeout: float | None) -> None:
        self.path = str(path)
        self.tell = tell
        self._timeout = timeout
        self._left = countdown(timeout)
        self._process: Process | None = None
        self._closed = False
        self._changed = Condition()
        self._lock: int | None = None

    def lock(self, fd: int, how: int) -> None:
        """Lock a folder. Waits for other processes.

        Raises:
            RuntimeError: the time is over.
            StreamerClosed: `close` was called.
        """
        told = False
        while True:
            try:
                fcntl.flock(fd, how | fcntl.LOCK_NB)
            except BlockingIOError:
                if not told:
                    self.tell("waits for another process that makes the environment")
                told = True
                if self._changed.wait_for(lambda: self._closed, PAUSE):
                    raise StreamerClosed("the hub is closed") from None
                if self._is_late:
                    failed = f"another process makes the environment {self.path}"
                    raise RuntimeError(f"{failed}: {self._lateness}") from None
            else:
                self._lock = fd
                return

    def run(
        self,
        command: list[str],
        failed: str,
        folder: Path | str = "/",
        *,
        bare: bool = False,
    ) -> None:
        """Run a program. It keeps the lock, also if this process is killed meanwhile.

        Args:
            command: the program and its arguments.
            failed: the beginning of the message if it fails.
            folder: in which it runs.
            bare: do not tell what it prints.

        Raises:
            RuntimeError: it fails, or the time is over. The message has what it printed.
            StreamerClosed: `close` was called.
        """
        environment = {"GIT_TERMINAL_PROMPT": "0", **os.environ}
        environment["UV_PROJECT_ENVIRONMENT"] = self.path
        for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"):
            environment.pop(name, None)
        lines: collections.deque[str] = collections.deque(maxlen=100)
        with self._started(
            ["/bin/sh", "-c", _REPORTING, str(folder), *command], environment
        ) as printed:
            for line in printed:
                lines.append(line)
                if line.startswith(_EXITED):
                    break  # a process that it has started may keep the pipe open
                if not bare:
                    self.tell(line)
        if self._closed:
            raise StreamerClosed("the hub is closed")
        has_ended = bool(lines) and lines[-1].startswith(_EXITED)
        if not has_ended or lines.pop() != f"{_EXITED}0":
            errors = itertools.dropwhile(lambda line: not re.match("(?i)error", line), lines)
            text = "\n".join(([*errors] or [*lines])[-8:]) or "it was killed"
            if self._is_late:
                text = f"{self._lateness}: {text}"
            raise RuntimeError(see(f"{failed}: {text}", "an-environment-that-cannot-be-made"))

    @property
    def _is_late(self) -> bool:
        return self._left() == 0

    @property
    def _lateness(self) -> str:
        return f"it took longer than load_timeout in model.toml ({self._timeout:g} s)"

    @contextlib.contextmanager
    def _started(self, command: list[str], environment: dict[str, str]) -> Iterator[Iterable[str]]:
        """Give the lines that a process prints, which is killed if it does not end by itself.

        ``subprocess`` does not work in a native thread if gevent has patched it.
        """
        files = [os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC), *os.pipe()]
        if self._lock is not None:
            files.append(os.dup(self._lock))
        null, read, write, *lock = files
        closing, _ = closing_inheritable()
        actions = [(null, 0), (write, 1), (write, 2), *((fd, self._lock) for fd in lock)]
        try:
            if self._closed:
                raise StreamerClosed("the hub is closed")
            pid = original("os", "posix_spawn")(
                command[0],
                command,
                environment,
                file_actions=[*closing, *((os.POSIX_SPAWN_DUP2, *each) for each in actions)],
                setsid=True,  # without a terminal: a program that asks there would wait for ever
            )
            self._process = Process(pid)
        except BaseException:
            os.close(read)
            raise
        finally:
            for fd in (null, write, *lock):
                os.close(fd)
        try:
            if self._closed:  # just now
                self.close()
            yield self._lines(read)
        finally:
            os.close(read)
            self._kill()
            self._process.wait(GRACE)

    def _lines(self, fd: int) -> Iterator[str]:
        """Yield what comes from a pipe until its end, or until the time is over."""
        poll = original("select", "poll")()
        poll.register(fd, select.POLLIN)
        data, rest = b"\n", b""
        while data:
            left = self._left()
            if not poll.poll(None if left is None else 1000 * left):
                return  # a process that the program has started may keep the pipe open
            data = os.read(fd, 1 << 16)
            *lines, rest = re.split(b"[\r\n]", rest + (data or b"\n"))
            yield from filter(None, (line.decode(errors="replace").strip() for line in lines))

    def close(self, drain: bool = False, timeout: float | None = 0) -> None:
        """End the program that runs."""
        self._closed = True
        self._changed.notify()
        self._kill()

    def _kill(self) -> None:
        """Kill the shell and what it has started."""
        process = self._process
        if process is not None and not process.ended:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _cache() -> Path:
    """Return the cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(os.environ.get(CACHE) or os.path.join(home, "service-streamer"))


def _whole(folder: Path, kind: str, texts: list[str]) -> tuple[str, ...]:
    """Return the texts of a list, and what they name in the folder of a version."""
    if kind == "uv.lock":  # it has digests of files
        named = any(re.search(r'\b(path|directory|editable) = "(?!\.")', each) for each in texts)
        return (*texts, *[str(folder)] * named)
    return (*texts, *_named(folder, "".join(texts), set()))


def _named(folder: Path, text: str, seen: set[str]) -> Iterator[str]:
    """Yield the digests of the files that a list names, and of those in them, and its folders.

    Raises:
        OSError: a file cannot be read.
        ValueError: the list is invalid.
    """
    before = ""
    for word in shlex.split(text.replace("\\\n", " "), comments=True):
        name = os.path.expandvars(_NAMES.sub("", word, count=1)).partition("[")[0]
        path = os.path.normpath(folder / name)
        if name and os.path.isdir(path):
            yield path
        elif os.path.isfile(path) and path not in seen:
            seen.add(path)
            content = Path(path).read_bytes()
            yield hashlib.sha256(content).hexdigest()
            if _LISTS.match(word if word.startswith("-") else before):
                yield from _named(Path(path).parent, content.decode(errors="replace"), seen)
        before = word


def interpreter_in(path: Path) -> str:
    """Return the interpreter of a virtual environment, or the path itself if it is no folder."""
    return str(path / "bin" / "python" if path.is_dir() else path)


def _has_pip() -> bool:
    """Return True if the pip of this Python can install into another environment."""
    with contextlib.suppress(metadata.PackageNotFoundError, ValueError):
        major, minor, *_ = metadata.version("pip").split(".")
        return (int(major), int(minor)) >= (22, 3)
    return False


def _open(path: Path) -> int:
    """Return a descriptor of a folder, which is made if it is missing."""
    while True:
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        for each in (path.parent, path):  # whatever the umask is
            each.mkdir(0o755, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # another process has removed it just now
            return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _check_owners(path: Path) -> None:
    """Check that no other user can put code into an environment.

    Raises:
        RuntimeError: the folder, or one that it is in, is that of another user.
    """
    *made_here, cache = path, path.parent, path.parent.parent
    for each in (*made_here, cache):
        about = each.stat()
        is_open = about.st_mode & stat.S_IWOTH and each is not cache
        if about.st_uid not in (0, os.geteuid()) or is_open:
            raise RuntimeError(
                f"{each} belongs to the user {about.st_uid}, with the mode "
                f"{about.st_mode & 0o7777:o}, so others could put code there: let {CACHE} name a "
                f"folder of the user {os.geteuid()}"
            )


def _unlock(fd: int) -> None:
    """Unlock a folder, also if a process that was forked meanwhile has its descriptor."""
    with contextlib.suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


def _is_open(fd: int, path: Path) -> bool:
    """Return True if a descriptor is of the folder that has this path now."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(fd), path.stat())
    return False


def _prune(cache: Path) -> None:
    """Remove the environments that no process uses, and that none has used for long."""
    for path in _old(cache):
        with contextlib.suppress(OSError):  # it is locked, or that of another user
            fd = _open(path)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                (path / READY).unlink()  # first, or half of it would count as whole
                shutil.rmtree(path, ignore_errors=True)
            finally:
                _unlock(fd)


def _old(cache: Path) -> Iterator[Path]:
    for path in cache.iterdir():
        with contextlib.suppress(OSError):  # one without the file is being made
            if time.time() - (path / READY).stat().st_mtime > UNUSED:
                yield path


def _nothing() -> None:
    """Release nothing."""
