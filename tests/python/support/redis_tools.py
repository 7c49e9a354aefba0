"""What tests of Redis workers have at the other end: a client that does one thing at a time."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import uuid

from redis_messages import pack_request
from remote import make_engine
from waits import LONG, eventually

from service_streamer import RedisWorker, _core
from service_streamer._redis.protocol import (
    GROUP,
    Keys,
    Refusal,
    Signer,
    unpack_replies,
    unpack_request,
)

QUICK = 0.3  # s: a claim_after for tests
SLOW = LONG  # the same where a thread that is late must have nothing claimed
MORTAL = {"worker_num": 2, "retries": 10, "max_deliveries": 1000}
"""the options of workers for `kill_under_load`: no request is to be taken for poison"""
SCRIPT = os.path.join(os.path.dirname(__file__), "redis_gateway.py")


def new_prefix():
    return uuid.uuid4().hex[:8]


class MakesAFolder:
    """Does when it is unpickled, for all to see."""

    def __init__(self, path):
        self._path = str(path)

    def __reduce__(self):
        return os.mkdir, (self._path,)


class RawClient:
    """Sends requests and takes replies, by plain commands. Its requests are real futures."""

    def __init__(self, server, prefix, *, secret=None, chunk=64):
        self.redis = server.client()
        self.keys = Keys(prefix)
        self.signer = Signer(secret)
        self.id = uuid.uuid4().bytes
        self.engine = make_engine(inline=True, policy="greedy")
        self.egress = _core.BrokerEgress(self.engine, chunk)
        self.accepted = self.ignored = 0
        self.refusals = []
        self._last = b"0"

    def close(self):
        self.egress.stop()
        self.engine.close(False)
        self.redis.close()

    # ---------------------------------------------------------------- requests

    def message(self, chunk, deadline=0, sent=None):
        """A request. Both times are in ms on the clock of the broker, here that of this machine."""
        number, begin, items, _, priority, body = chunk
        sent = int(time.time() * 1000) if sent is None else sent
        return pack_request(self.id, number, begin, items, deadline, sent, priority, body)

    def chunks(self, *batches, priority=0):
        """Futures of requests, and what is to be sent of them."""
        futures = [self.engine.submit(batch, None, priority) for batch in batches]
        chunks, _ = self.egress.take(1 << 20, 0)
        return futures, chunks

    def post(self, message, key=None):
        sealed = self.signer.seal(self.keys.queue, message)
        return self.redis.xadd(self.keys.queue, {"m": sealed})

    def send(self, *batches, deadline=None, priority=0):
        """Send requests; the future of each. `deadline`: seconds from now."""
        futures, chunks = self.chunks(*batches, priority=priority)
        at = 0 if deadline is None else int((time.time() + deadline) * 1000)
        self.entries = [self.post(self.message(chunk, at)) for chunk in chunks]
        return futures

    def ask(self, batch, timeout=LONG):
        (future,) = self.send(batch)
        return self.result(future, timeout)

    # ----------------------------------------------------------------- replies

    @property
    def reply_key(self):
        return self.keys.replies(self.id)

    def read(self, timeout=LONG):
        """Wait for replies and take them; False: none came."""
        found = self.redis.xread({self.reply_key: self._last}, block=max(1, int(timeout * 1000)))
        for entry_id, fields in found[0][1] if found else ():
            self._last = entry_id
            self._take(unpack_replies(self.signer.open(self.reply_key, fields[b"m"])))
        return bool(found)

    def _take(self, answers):
        if isinstance(answers, Refusal):
            self.refusals.append(answers.note)
            self.egress.lose([answers.request], answers.note)
            return
        taken = self.egress.answer(answers)
        self.accepted += taken
        self.ignored += len(answers) - taken

    def result(self, future, timeout=LONG):
        deadline = time.monotonic() + timeout
        while not future.done():
            assert self.read(1.0) or time.monotonic() < deadline, "no answer came"
        return future.result(0)

    def results(self, futures):
        return [self.result(future) for future in futures]

    # -------------------------------------------------------------- the queue

    def length(self):
        return self.redis.xlen(self.keys.queue)

    def pending(self):
        with contextlib.suppress(Exception):  # no group yet
            return self.redis.xpending(self.keys.queue, GROUP)["pending"]
        return 0

    def deliveries(self):
        found = self.redis.xpending_range(self.keys.queue, GROUP, "-", "+", 1000)
        return [entry["times_delivered"] for entry in found]

    def idle(self):
        """For how many ms the oldest entry that a worker has was not touched."""
        (entry,) = self.redis.xpending_range(self.keys.queue, GROUP, "-", "+", 1)
        return entry["time_since_delivered"]

    def consumers(self):
        with contextlib.suppress(Exception):
            return [each["name"] for each in self.redis.xinfo_consumers(self.keys.queue, GROUP)]
        return []

    def is_clean(self):
        return self.length() == 0 and self.pending() == 0


class Queue:
    """The queue of a prefix, by plain commands."""

    def __init__(self, server, prefix):
        self.redis = server.client()
        self.keys = Keys(prefix)

    def __len__(self):
        return self.redis.xlen(self.keys.queue)

    def entries(self):
        return [(entry, fields[b"m"]) for entry, fields in self.redis.xrange(self.keys.queue)]

    def requests(self):
        return [unpack_request(message) for _, message in self.entries()]

    def reply_streams(self):
        return self.redis.keys(self.keys.queue[:-1] + b"r:*")


class ThreadedWorker:
    """A RedisWorker in a thread of the test."""

    def __init__(self, model, server, prefix, batch_size=8, **options):
        options.setdefault("_claim_after", QUICK)
        options.setdefault("redis_broker", server.url)
        self.worker = RedisWorker(model, batch_size, 0.01, prefix=prefix, **options)
        self.error = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def consumer(self):
        """At the first shard."""
        return self.worker._gateway.links[0].consumer

    @property
    def counts(self):
        return self.consumer.counts

    @property
    def name(self):
        return self.consumer.name.encode()

    @property
    def held(self):
        """Entries that are here; the broker may have sent some more."""
        return len(self.consumer.leases)

    @property
    def queued(self):
        """Items that wait for the model; not all that is here may have come so far."""
        return self.worker._gateway.engine.stats()["queued_items"]

    def wait_ready(self, client):
        eventually(lambda: self.worker._gateway is not None and self.name in client.consumers())
        return self

    def close(self, drain=True):
        self.worker.close(drain)
        self.join()

    def join(self):
        self._thread.join(LONG)
        assert not self._thread.is_alive(), "the worker hangs"

    def _run(self):
        try:
            self.worker.run_forever()
        except BaseException as error:
            self.error = error


class ProcessWorker:
    """A RedisWorker in a process: redis_gateway.py with its arguments as JSON.

    Args:
        under: a command that runs it.
    """

    def __init__(self, model, server, prefix, batch_size=8, under=(), **options):
        options.setdefault("_claim_after", QUICK)
        arguments = {"model": model, "batch_size": batch_size, "prefix": prefix, **options}
        arguments.setdefault("redis_broker", server.url)
        self._log, path = tempfile.mkstemp()
        os.unlink(path)
        command = [*under, sys.executable, "-X", "faulthandler", SCRIPT, json.dumps(arguments)]
        self.process = subprocess.Popen(command, stderr=self._log)
        self.pid = self.process.pid

    def wait_ready(self, client):
        mark = f"-{self.pid}-".encode()
        eventually(lambda: any(mark in name for name in client.consumers()))
        return self

    def log(self):
        """What it has said so far."""
        return os.pread(self._log, 1 << 20, 0).decode(errors="replace")

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self):
        return self.process.wait(LONG)

    def kill(self):
        self.process.kill()
        self.process.wait(LONG)

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(LONG)
        finally:
            self.process.kill()
            self.process.wait()
            print(self.log())
            os.close(self._log)
