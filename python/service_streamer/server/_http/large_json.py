"""LargeJson: parses large bodies in a process of its own.

A parser of JSON holds the GIL for the whole body, and so does the conversion of its lists. In this
process either would stop all other requests. The process returns arrays, which are only copied, or
items in pieces, between which other threads run.
"""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .._items import Items, Specs
from .messages import Refused

INLINE = 1 << 20  # bytes that are parsed in this process

_PROCESS = f"{__package__}.parser_process"
Bytes = bytes | bytearray | memoryview


def small(text: Bytes) -> Bytes:
    """Return a body that only has options.

    Raises:
        Refused: it is large.
    """
    if len(text) > INLINE:
        raise Refused(413, f"the body has more than {INLINE} bytes")
    return text


class LargeJson:
    """Parses bodies one at a time. The process starts with the first one."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "service-streamer-json")
        self._process: subprocess.Popen[bytes] | None = None
        self._end: weakref.finalize[Any, LargeJson] | None = None

    async def infer(self, text: Bytes) -> dict[str, Any]:
        """Return the object of an infer request, whose ``data`` are arrays.

        Raises:
            Refused: it is invalid, or has too many values.
        """
        (request,) = await self._run("infer", text)
        return request  # type: ignore[no-any-return]

    async def predict(
        self, text: Bytes, fields: tuple[str, ...], specs: Specs, structure: str | None
    ) -> dict[str, Any]:
        """Return the object of a predict or stream request, whose items are `Items`.

        Args:
            text: the body.
            fields: that it may have.
            specs, structure: as for `items_of_instances`.

        Raises:
            Refused: it is invalid, or has too many values.
        """
        (name, rank), *pieces = await self._run("predict", text, fields, dict(specs), structure)
        return {name: Items([each for piece in pieces for each in piece], rank)}

    async def _run(self, *job: Any) -> list[Any]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._ask, *job)

    def _ask(self, kind: str, text: Bytes, *arguments: Any) -> list[Any]:
        try:
            process: Any = self._process or self._start()
            write(process.stdin, pickle.dumps((kind, *arguments)), text)
            status, *parts = read(process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            if self._end is not None:
                self._end()
            self._process = None
            why = "the process that parses large bodies died; try again"
            raise Refused(503, why, ("retry-after", "1")) from None
        if status:
            raise Refused(int(status), bytes(parts[0]).decode())
        return [pickle.loads(each) for each in parts]  # other threads run in between

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", _PROCESS]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._end = weakref.finalize(self, _end, self._process)
        return self._process


def _end(process: Any) -> None:
    process.kill()  # it has nothing to finish
    process.communicate()


def write(file: Any, *parts: Bytes) -> None:
    """Write parts, for `read` at the other end of a pipe."""
    file.write(pickle.dumps([len(each) for each in parts]))
    for each in parts:
        file.write(each)
    file.flush()


def read(file: Any) -> list[bytes]:
    """Return the parts that `write` has written.

    Raises:
        EOFError: the other end has ended.
    """
    parts = []
    for size in pickle.load(file):
        parts.append(file.read(size))
        if len(parts[-1]) < size:
            raise EOFError
    return parts
