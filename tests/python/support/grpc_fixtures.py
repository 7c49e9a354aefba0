"""What the tests of the gRPC server share: servers in a thread, and clients of Triton."""

import asyncio
import threading

import pytest
from making import made_by
from waits import LONG

from service_streamer.hub import ModelHub


class GrpcThread:
    """Serves a hub from an event loop of its own."""

    def __init__(self, hub, max_message, access, introspection=True, **options):
        from uvloop import new_event_loop

        from service_streamer.server._access import Access
        from service_streamer.server._grpc.front import GrpcFront
        from service_streamer.server._service import Service

        self.hub = hub
        self.service = Service(hub, introspection)
        self.loop = new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.run(self._start(GrpcFront, max_message, access or Access("open"), options))
        self.address = self._front.url.removeprefix("grpc://")

    async def _start(self, kind, max_message, access, options):
        self._front = kind(self.service, ("127.0.0.1", 0), max_message, access, **options)
        await self._front.start()

    def run(self, main):
        return self.begin(main).result(LONG)

    def begin(self, main):
        return asyncio.run_coroutine_threadsafe(main, self.loop)

    def stop(self):
        """Begin to stop the front. Returns a future."""
        self.service.stop()
        return self.begin(self._front.stop())

    def close(self):
        self.hub.close(drain=False, timeout=LONG)
        self.stop().result(LONG)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(LONG)
        self.loop.close()


@pytest.fixture
def grpc_servers(monkeypatch):
    """Serves models over gRPC, until the test has ended."""
    from service_streamer.server._grpc import front

    monkeypatch.setattr(front, "GRACE", 0.0)

    def start(models, max_message=1 << 24, access=None, **options):
        return GrpcThread(ModelHub(models), max_message, access, **options)

    yield from made_by(start)


@pytest.fixture
def triton_clients():
    """Makes clients of Triton for servers, or for addresses."""
    triton = pytest.importorskip("tritonclient.grpc")

    def connect(server):
        return triton.InferenceServerClient(getattr(server, "address", server))

    yield from made_by(connect)


@pytest.fixture
def connect(server_hubs, grpc_servers, triton_clients):
    """Serves models in a protocol of `server_protocols`, and connects a client."""
    import server_protocols

    def connect(models, kind):
        return server_protocols.connect(kind, models, server_hubs, grpc_servers, triton_clients)

    return connect
