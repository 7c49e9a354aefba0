"""The owner of a RayStreamer in a thread of this process, without a Ray cluster."""

import asyncio
import concurrent.futures
import pickle
import threading
import types

from ray.exceptions import ActorUnavailableError, GetTimeoutError

from service_streamer._base.options import Options
from service_streamer._ray.owner import actor as owner
from service_streamer._ray.owner.answers import held_until_flush
from service_streamer._ray.settings import RaySettings
from service_streamer._waiting.threads import NativeThread


class Ref:
    """A call of the owner, or an object in the store."""

    def __init__(self):
        self._future = concurrent.futures.Future()

    def future(self):
        return self._future


class LocalRay:
    """`get`, `put` and `wait`, in the place of those of Ray."""

    def __init__(self):
        self.fetching = lambda: None
        """called before objects are fetched from the store; may raise"""
        self._stored = []

    def get(self, refs, timeout=None):
        if isinstance(refs, list):
            return [self.get(ref) for ref in refs]
        if refs in self._stored:
            self.fetching()
        try:
            return refs.future().result(timeout)
        except concurrent.futures.TimeoutError:
            raise GetTimeoutError("there is no answer") from None

    def put(self, value):
        self._stored.append(ref := Ref())
        ref.future().set_result(value)
        return ref

    def wait(self, refs, **_):
        return refs, []


class Echo:
    """In the place of the pool of an owner: returns the items of a batch when the gate is open."""

    def __init__(self, engine, name, packed, options, output_batch, settings, flush):
        self.gate = threading.Event()
        self.gate.set()
        self.limits = settings.limits
        """the limits of the number of replicas"""
        self._ran = []
        self._engine = engine
        self._flush = flush
        self._thread = NativeThread(self._run, "echo")
        self._thread.start()

    def _run(self):
        while batch := self._engine.next_batch(None):
            payloads = [piece.payload for piece in batch.items]
            self._ran += [each for each in payloads if type(each) is bytes]
            self.gate.wait()
            with held_until_flush():
                batch.complete(payloads)
            self._flush()

    @property
    def ran(self):
        """The items that it got, except large ones."""
        return [pickle.loads(each) for each in self._ran]

    def resize(self, limits):
        self.limits = limits

    def stop(self):
        self.gate.set()
        self._thread.join(None)


class LocalOwner:
    """The handle of an owner whose replicas are an `Echo`.

    Args:
        retries: of the streamer.
    """

    def __init__(self, retries=1):
        self.refusals = []
        """errors that the next calls of put() raise in the client"""
        self.delays = []
        """seconds until the next calls of put() arrive"""
        self.puts = 0
        """how many calls of put() there were"""
        self.unanswered = []
        """names of methods whose next call does not arrive, as that to a node that is cut off"""
        self._settings = RaySettings(retries=retries)
        self._open = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._start()

    @property
    def echo(self):
        return self.owner._pool

    def queued(self):
        return self.owner.engine.stats()["queued_items"]

    def restart(self):
        """Replace the owner by another one, which knows nothing."""
        old, lost, self._open = self.owner, self._open, []
        self._start()
        self._lose(lost)
        self._end(old)

    def lose_puts(self):
        """Let the calls of put() fail that have no answer."""
        self._lose([call for call in self._open if call[0] == "put"])

    def close(self):
        self._end(self.owner)
        self._in_loop(self._cancel_all()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __getattr__(self, name):
        def remote(*args):
            delay = 0
            if name == "put":
                self.puts += 1
                delay = self.delays.pop(0) if self.delays else 0
                if self.refusals:
                    raise self.refusals.pop(0)
            ref = Ref()
            if name in self.unanswered:
                self.unanswered.remove(name)
                return ref
            self._open.append((name, ref.future()))
            self._in_loop(self._answer(getattr(self.owner, name), args, delay, ref.future()))
            return ref

        return types.SimpleNamespace(remote=remote)

    async def _answer(self, method, args, delay, future):
        await asyncio.sleep(delay)
        answer = await method(*args)
        if not future.done():
            future.set_result(answer)

    @staticmethod
    def _lose(calls):
        for _, future in calls:
            if not future.done():
                future.set_exception(ActorUnavailableError("it is out of reach", None))

    @staticmethod
    async def _cancel_all():
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self):
        async def make():
            options = Options(batch_size=2, policy="greedy")
            return owner.Owner(b"", "model", options, False, self._settings)

        self.owner = self._in_loop(make()).result()

    def _in_loop(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def _end(self, old):
        async def leave():
            for client in list(old._clients):
                await old.leave(client)

        self._in_loop(leave()).result()
        old.engine.close(False)
        old.engine.abort()
        old._pool.stop()
