"""A client of an address at which nothing listens: each error and explain() says so, and why."""

import asyncio
import errno
import os
import uuid

import pytest
from thread_models import double
from waits import LONG, eventually

from service_streamer import RequestTimeout, Streamer, StreamerError

SHORT = 0.05  # s


@pytest.fixture(params=["name", "path"])
def absent(request, tmp_path):
    """An address where nothing listens, and the system's reason."""
    if request.param == "name":
        return f"@{uuid.uuid4()}", os.strerror(errno.ECONNREFUSED)
    return str(tmp_path / "none"), os.strerror(errno.ENOENT)


def waits_for_result(client):
    client.submit([1]).result(SHORT)


ASKED = [
    (RequestTimeout, lambda client: client.predict([1])),
    (RequestTimeout, lambda client: client.submit([1], timeout=SHORT).result(LONG)),
    (RequestTimeout, waits_for_result),
    (RequestTimeout, lambda client: asyncio.run(client.apredict([1]))),
    (RequestTimeout, lambda client: client.wait_ready(SHORT)),
    (StreamerError, lambda client: client.stats()),
    (StreamerError, lambda client: client.configure(batch_size=4)),
]


def test_errors_explain_and_one_log_entry_name_the_address_and_the_reason(absent, caplog):
    address, reason = absent
    client = Streamer.connect(address, worker_timeout=SHORT)
    for kind, ask in ASKED:
        with pytest.raises(kind) as raised:
            ask(client)
        assert address in str(raised.value)
        assert reason in str(raised.value)
    text = client.explain()
    assert address in text
    assert reason in text
    (record,) = caplog.records
    assert address in record.getMessage()
    assert reason in record.getMessage()
    client.close(drain=False, timeout=LONG)


def test_a_streamer_that_comes_is_no_longer_called_absent(absent, caplog):
    address, reason = absent
    client = Streamer.connect(address, worker_timeout=LONG)
    future = client.submit([1])
    eventually(lambda: caplog.records)
    with Streamer(double, 8, address=address, mp_start_method="fork") as streamer:
        streamer.wait_ready(LONG)
        assert future.result(LONG) == [2]
        assert reason not in client.explain()
        client.close(timeout=LONG)


def test_the_process_ends_while_a_thread_waits(absent, program):
    done = program(
        f"""
        import threading
        from service_streamer import Streamer, StreamerClosed

        def ask():
            try:
                client.predict([1])
            except StreamerClosed:
                print("closed")

        client = Streamer.connect({absent[0]!r}, worker_timeout={2 * LONG})
        threading.Thread(target=ask).start()
        """
    )
    assert done.stdout == "closed\n"
    assert done.timing < LONG / 2
