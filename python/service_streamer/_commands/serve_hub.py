"""``serve`` of a folder of models, or of a `ModelHub`: the server of `service_streamer.server`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .http import http_server
from .logs import say
from .options import (
    PLACEMENT,
    Add,
    CommandError,
    flag,
    host_and_port,
    look_in_working_folder,
    read_secret,
)

if TYPE_CHECKING:
    from ..hub import ModelHub
    from ..server._service import Service

HUB_OPTIONS = ("max_loaded", "memory_budget", "gpu_memory_budget")
SERVER_OPTIONS = ("body_limit", "grpc", "monitor", "control_token_file")
WORKERS = "worker_num"
"""of a `Streamer`; for a folder: the worker processes that its models share"""


def add_hub_options(add: Add) -> None:
    """Add the options of a server of many models."""
    add("--max-loaded", type=int, help="most models of a folder that are loaded (no limit)")
    add("--memory-budget", metavar="SIZE", help='most memory of them, such as "12GB" (no limit)')
    add("--gpu-memory-budget", metavar="SIZE", help="the same for all GPUs together (no limit)")
    add(
        "--grpc",
        type=host_and_port,
        metavar="HOST:PORT",
        help='also serve them over gRPC there (needs the extra "grpc")',
    )
    add(
        "--body-limit",
        metavar="SIZE",
        help='most bytes of a request, such as "64MiB" (64MiB)',
    )
    add(
        "--monitor",
        type=host_and_port,
        metavar="HOST:PORT",
        help='also serve their page and metrics there (needs the extra "web" and uvicorn)',
    )
    add(
        "--control-token-file",
        metavar="FILE",
        help="contains the token that changes on the page need (none: it only shows)",
    )


def open_hub(name: str, found: Any, options: dict[str, Any]) -> ModelHub:
    """Return the hub to serve. Removes its options.

    Args:
        name: the folder, or ``module:attribute``.
        found: the object of this name; None: it is a folder.
        options: the options of the command.

    Raises:
        CommandError: an option is not for this.
        ImportError: the extra ``hub`` is not installed.
    """
    own = (*HUB_OPTIONS, *PLACEMENT, WORKERS)
    given = {each: options.pop(each) for each in own if each in options}
    if found is not None:
        if given:
            refused = ", ".join(map(flag, given))
            raise CommandError(f"{refused}: {name} is a ModelHub, which has its own limits")
        hub: ModelHub = found
        return hub
    from ..hub import ModelHub

    if WORKERS in given:
        given["workers"] = given.pop(WORKERS)
    look_in_working_folder()
    return ModelHub.watch(name, **given)


def serve_hub(
    name: str,
    found: Any,
    *,
    http: tuple[str, int] | None,
    grpc: tuple[str, int] | None = None,
    monitor: tuple[str, int] | None = None,
    control_token_file: str | None = None,
    drain_timeout: float | None,
    **options: Any,
) -> int:
    """Serve many models until a signal comes."""
    if http is None and grpc is None:
        raise CommandError(f"{name} is served at an address: give --http or --grpc HOST:PORT")
    if control_token_file is not None and monitor is None:
        raise CommandError("--control-token-file needs --monitor HOST:PORT")
    from ..server._http.front import BODY_LIMIT, HttpFront
    from ..server._http.routes import Application
    from ..server._serving import Front, serve

    if grpc is not None:
        from ..server._grpc.front import GrpcFront
    from ..hub._memory import parse_bytes

    limit = parse_bytes("--body-limit", options.pop("body_limit", None)) or BODY_LIMIT
    token = _read_token(control_token_file)

    def fronts(service: Service) -> Sequence[Front]:
        found: list[Front] = []
        if http is not None:
            with _listening("--http", http):
                found.append(HttpFront(Application(service), http, limit))
        if grpc is not None:
            with _listening("--grpc", grpc):
                found.append(GrpcFront(service, grpc, limit))
        if pages is not None:
            pages.start(hub, token, functools.partial(_collector, service))
        return found

    with http_server(monitor, "--monitor") as pages:  # it answers during the drain
        hub = open_hub(name, found, options)
        if options:
            refused = ", ".join(map(flag, options))
            hub.close()
            raise CommandError(f"{refused}: not for a ModelHub: its models have their own options")
        serve(hub, fronts, say=say, drain_timeout=drain_timeout)
    return 0


def _read_token(path: str | None) -> str | None:
    secret = read_secret(path)
    if secret is None:
        return None
    try:
        token = secret.decode()
    except UnicodeDecodeError:
        raise CommandError(f"--control-token-file: {path} is not UTF-8") from None
    if not token:
        raise CommandError(f"--control-token-file: {path} is empty")
    return token


def _collector(service: Service) -> Any:
    from ..server._metrics import ServerCollector  # requires prometheus-client

    return ServerCollector(service.counts)


@contextlib.contextmanager
def _listening(option: str, place: tuple[str, int]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise CommandError(f"{option}: cannot listen at {place[0]}:{place[1]}: {why}") from None


def check_no_hub_options(name: str, options: dict[str, Any]) -> None:
    """Raise CommandError if an option is for a hub only."""
    refused = [option for option in (*HUB_OPTIONS, *SERVER_OPTIONS) if option in options]
    if refused:
        raise CommandError(f"{', '.join(map(flag, refused))}: {name} is one model, not a ModelHub")
