"""The descriptors of mailboxes, and a process that has none left."""

import os
import sys

import pytest
from scripts import SUPPORT
from thread_models import Gate

from service_streamer import ThreadedStreamer, _core


def test_a_mailbox_without_a_descriptor_is_an_error(child):
    child(
        """
        import asyncio, errno, os, resource, threading
        from descriptors import give_back, use_up
        from service_streamer import ThreadedStreamer, _core

        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        go = threading.Event()
        streamer = ThreadedStreamer(lambda batch: go.wait(30) and batch, 8)
        go.set()
        streamer.predict([1])

        async def main():
            go.clear()  # a task that finds its answer there needs no mailbox
            taken = use_up()
            errors = []
            for call in (_core.Mailbox, lambda: streamer.submit([1]).__await__().send(None)):
                try:
                    call()
                except OSError as error:
                    errors.append(error.errno)
            try:
                await streamer.apredict([2])
            except OSError as error:
                errors.append(error.errno)
            give_back(taken)
            go.set()
            assert errors == [errno.EMFILE] * 3, errors
            assert await streamer.apredict([3]) == [3]
            assert _core.Mailbox().drain() == []

        asyncio.run(main())
        assert streamer.predict([4], timeout=30) == [4]
        """,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([SUPPORT, *sys.path])},
    )


def test_a_closed_mailbox_has_no_descriptor_and_forgets_what_comes():
    gate = Gate()
    streamer = ThreadedStreamer(gate, 1)
    mailbox = _core.Mailbox()
    descriptor = mailbox.fileno()
    future = streamer.submit([1])
    gate.wait_entered()  # its thread has started: it takes no number that is freed here
    assert future._attach(mailbox, "token")
    mailbox.close()
    mailbox.close()
    assert mailbox.fileno() == -1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    gate.open()
    streamer.close()
    assert future.done()
    assert mailbox.drain() == []
    mailbox.resume()
