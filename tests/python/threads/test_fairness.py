"""Many threads that ask again as soon as they have their answer get equal shares."""

import threading

import pytest
from waits import eventually

CALLERS = 1024
EACH = 20  # answers, on average, that are counted


@pytest.mark.in_process
def test_a_thousand_callers_in_a_closed_loop_get_equal_shares(streamers):
    streamer = streamers(lambda batch: batch, batch_size=64)
    answers = [0] * CALLERS
    over = threading.Event()

    def ask(caller):
        while not over.is_set():
            streamer.predict([caller])
            answers[caller] += 1

    threads = [threading.Thread(target=ask, args=(i,), daemon=True) for i in range(CALLERS)]
    try:
        for thread in threads:
            thread.start()
        eventually(lambda: all(answers))
        before = list(answers)
        eventually(lambda: sum(answers) - sum(before) >= EACH * CALLERS)
        shares = [after - then for after, then in zip(answers, before, strict=True)]
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert min(shares) >= 0.5 * max(shares), f"{min(shares)} … {max(shares)}"
