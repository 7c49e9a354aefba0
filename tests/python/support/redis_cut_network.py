"""A client, a worker and a broker in a network of their own, which is away for some seconds.

``unshare --net python redis_cut_network.py``: prints how many answers there were before, during and
after the cut, and ends with a traceback where one was wrong or missing.
"""

import subprocess
import threading
import time

from process_models import double
from redis_server import RedisServer
from redis_tools import ThreadedWorker, new_prefix
from waits import LONG, eventually

from service_streamer import RedisStreamer

CUT = 5.0  # s
CALLERS = 8


def set_network(state):
    subprocess.run(["ip", "link", "set", "lo", state], check=True)


def main():
    set_network("up")
    server, prefix = RedisServer(), new_prefix()
    worker = ThreadedWorker(double, server, prefix, _claim_after=2.0)
    counts, failures, stop = [0] * CALLERS, [], threading.Event()

    def ask(streamer, caller):
        while not stop.is_set():
            number = counts[caller]
            try:
                answer = streamer.predict([caller, number], timeout=LONG)
                assert answer == [2 * caller, 2 * number], (answer, caller, number)
            except Exception as error:
                failures.append(error)
                return
            counts[caller] += 1

    with RedisStreamer(server.address, prefix) as streamer:
        streamer.predict([0])
        callers = [threading.Thread(target=ask, args=(streamer, n)) for n in range(CALLERS)]
        for caller in callers:
            caller.start()
        eventually(lambda: min(counts) > 20)
        set_network("down")
        before = counts[:]
        time.sleep(CUT)
        during = counts[:]
        set_network("up")
        eventually(lambda: failures or all(n > m + 20 for n, m in zip(counts, during, strict=True)))
        stop.set()
        for caller in callers:
            caller.join(LONG)
        assert not failures, failures
    worker.close()
    server.close()
    print(sum(before), sum(during) - sum(before), sum(counts) - sum(during))


if __name__ == "__main__":
    main()
