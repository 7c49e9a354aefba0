"""A client, a worker and a broker in a network of their own, which is away for some seconds.

``unshare --net python redis_cut_network.py``: prints how many answers there were before, during and
after the cut, and ends with a traceback where one was wrong or missing.
"""

import subprocess
import time

from asking import Asking
from process_models import double
from redis_server import RedisServer
from redis_tools import ThreadedWorker, new_prefix

from service_streamer import RedisStreamer

CUT = 5.0  # s
CALLERS = 8


def set_network(state):
    subprocess.run(["ip", "link", "set", "lo", state], check=True)


def main():
    set_network("up")
    server, prefix = RedisServer(), new_prefix()
    worker = ThreadedWorker(double, server, prefix, _claim_after=2.0)
    with RedisStreamer(server.address, prefix) as streamer:
        streamer.predict([0])
        asking = Asking(streamer, CALLERS)
        asking.wait_for_more(20)
        set_network("down")
        before = asking.answered
        time.sleep(CUT)
        during = asking.answered
        set_network("up")
        asking.wait_for_more(20)
        after = asking.stop()
    worker.close()
    server.close()
    print(before, during - before, after - during)


if __name__ == "__main__":
    main()
