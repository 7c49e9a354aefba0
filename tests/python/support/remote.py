"""An engine for worker processes whose workers are threads of the test, over real sockets."""

import socket
import threading

from service_streamer import Future, _core
from service_streamer._models import serving

LONG = 30
NO_PID = 2**22 + 1  # larger than any: nothing may be killed here


class Asks:
    """What asks its `engine`."""

    def predict(self, batch, timeout=LONG, priority=0):
        return self.engine.predict(batch, timeout, priority)

    def submit(self, batch, timeout=None, priority=0):
        return self.engine.submit(batch, timeout, priority)


class RemoteEngine(Asks):
    """What Streamer has of the core: an engine, its server, and workers at the other end."""

    def __init__(self, predict, *, workers=1, retries=1, output="items", inline=False, **options):
        self.engine = make_engine(output=output, workers=max(workers, 1), inline=inline, **options)
        self.server = _core.Server(self.engine, retries, None, None)
        self.server.start()
        self._predict = predict
        self._output_batch = output == "batch"
        self._inline = inline
        self._threads = []
        for _ in range(workers):
            self.add_worker()

    def add_worker(self):
        ours, theirs = socket.socketpair()
        worker = self.server.add_worker(ours.detach(), NO_PID, b"setup")
        thread = threading.Thread(target=self._work, args=(theirs.detach(),), daemon=True)
        thread.start()
        self._threads.append(thread)
        while (event := self.server.next_event(LONG))[:2] != ("ready", worker):
            assert event is not None
        return worker

    def close(self):
        self.engine.close(False)
        self.server.stop()
        self.engine.abort()
        for thread in self._threads:
            thread.join(LONG)
            assert not thread.is_alive()

    def _work(self, fd):
        link = _core.WorkerLink(fd, self._output_batch, self._inline)
        assert link.receive_setup() == b"setup"
        link.send_ready('{"pid": 1}')
        while (left := link.run_batches(self._predict, serving.is_logged)) is not None:
            serving.serve(*left, self._predict, budget=8)
            del left


def make_engine(**options):
    known = {
        "batch_size": 8,
        "max_latency": 0.01,
        "policy": "adaptive",
        "workers": 1,
        "max_queue": 0,
        "overflow": "block",
        "output": "items",
        "future_type": Future,
        "start": lambda: None,
        "start_timer": lambda: None,
        "remote": True,
    }
    return _core.Engine(**{**known, **options})


def gate_then(gate, predict):
    def run(batch):
        gate(batch)
        return predict(batch)

    return run
