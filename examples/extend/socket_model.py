"""A streamer whose model runs in another process, which it reaches by a socket.

    python socket_model.py serve model.sock &
    python socket_model.py ask model.sock one two three

The back end uses `service_streamer.extend` and the standard library, nothing else.
"""

import functools
import sys
import threading
import time
from multiprocessing.connection import Client, Listener

from service_streamer import WorkerLost
from service_streamer.extend import BackendStreamer, Options, WaitingRoom, answer

PAUSE = 0.05  # s between two attempts to connect

# --------------------------------------------------------- the process of the callers


def connect(address, options, connections=1):
    """Return a streamer for the model that listens at the address.

    Args:
        address: of the model: a path, or a pair (host, port).
        options: of the streamer.
        connections: how many batches the model gets at a time.
    """
    backend = functools.partial(ModelConnections, address=address, connections=connections)
    return BackendStreamer(options, backend, name=f"connect({address!r})")


class ModelConnections(WaitingRoom):
    """Each thread has a connection to the model, and sends it one batch at a time."""

    def __init__(self, options, address, connections):
        self._options = options
        self._address = address
        self._mine = threading.local()  # the connection of a thread, and what closes it
        self._closing = threading.Event()
        super().__init__(options, threads=connections)

    def hand_on(self, batch):
        answer(batch, self._ask, self._options)

    def ended(self):
        self._disconnect()

    def close(self, drain):
        self._closing.set()  # ends `wait_ready`
        super().close(drain)

    def wait_ready(self, timeout):
        until = None if timeout is None else time.monotonic() + timeout
        while not self._closing.is_set():
            try:
                Client(self._address).close()
                return True
            except OSError:
                left = PAUSE if until is None else min(PAUSE, until - time.monotonic())
            if left <= 0:
                break
            self._closing.wait(left)
        return False

    def _ask(self, items):
        """Run the model on the items: what `predict_function` is for a ThreadedStreamer."""
        try:
            connection = self._connect()
            connection.send(items)
            outputs, error = connection.recv()
        except (EOFError, OSError) as lost:
            self._disconnect()
            raise WorkerLost(f"the model at {self._address!r} is lost: {lost!r}") from lost
        if error is not None:
            raise error
        return outputs

    def _connect(self):
        if getattr(self._mine, "connection", None) is None:
            self._mine.connection = Client(self._address)
        return self._mine.connection

    def _disconnect(self):
        if (connection := getattr(self._mine, "connection", None)) is not None:
            self._mine.connection = None
            connection.close()


# ------------------------------------------------------------ the process of the model


def serve(predict, listener):
    """Run a model for each connection, in a thread of its own."""
    while True:
        connection = listener.accept()
        threading.Thread(target=serve_one, args=(predict, connection), daemon=True).start()


def serve_one(predict, connection):
    """Run a model for one connection, until the other end has closed it."""
    with connection:
        while True:
            try:
                items = connection.recv()
            except (EOFError, OSError):
                return
            except Exception as error:  # an item cannot be unpickled here
                reply = None, error
            else:
                reply = run(predict, items)
            try:
                connection.send(reply)
            except OSError:
                return
            except Exception as error:  # it cannot be pickled
                connection.send((None, TypeError(f"the reply of the model: {error!r}")))


def run(predict, items):
    """Return the outputs of a model, or the exception that it raises."""
    try:
        return predict(items), None
    except Exception as error:
        return None, error


def upper(texts):
    """Stand for a model."""
    return [text.upper() for text in texts]


def main(command, address, *texts):
    """Do what the module says."""
    if command == "serve":
        with Listener(address) as listener:
            serve(upper, listener)
    else:
        with connect(address, Options(batch_size=64)) as streamer:
            streamer.wait_ready(timeout=10)
            print(*streamer.predict(texts))


if __name__ == "__main__":
    main(*sys.argv[1:])
