"""A Redis worker for tests that end it: `redis_gateway.py ARGUMENTS`, of RedisWorker as JSON."""

import importlib
import json
import logging
import os
import signal
import sys
import time

from service_streamer import RedisWorker
from service_streamer._redis.gateway import admission, commands, lease_keeper


def die_after_reply(finish):
    """Reply, but die before the entries are acknowledged."""

    def replying(self, connection, replies, ids):
        finish(self, connection, replies, [])
        os.kill(os.getpid(), signal.SIGKILL)

    return replying


def main():
    logging.basicConfig(level="INFO", format="%(message)s")
    options = json.loads(sys.argv[1])
    if ahead := options.pop("wall_clock_ahead", 0):
        wall_clock = time.time
        time.time = lambda: wall_clock() + ahead
    admission.MAX_DELIVERIES = options.pop("max_deliveries", admission.MAX_DELIVERIES)
    lease_keeper.BEATS = options.pop("beats", lease_keeper.BEATS)
    if options.pop("die_after_reply", False):
        commands.Queue.finish = die_after_reply(commands.Queue.finish)
    module, _, name = options.pop("model").partition(":")
    model = getattr(importlib.import_module(module), name)
    RedisWorker(model, max_latency=0.01, **options).run_forever()


if __name__ == "__main__":
    main()
