"""``serve`` of a folder of models, or of a `ModelHub`: the server of `service_streamer.server`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._base import options as _options
from .._base.errors import StreamerError
from . import logs
from .http import end_listening, http_server, listen, shown, url_of
from .logs import say
from .options import (
    PLACEMENT,
    Add,
    CommandError,
    Place,
    flag,
    look_in_working_folder,
    place,
)

if TYPE_CHECKING:
    from ..hub import ModelHub
    from ..server._access import Access
    from ..server._service import Service

HUB_OPTIONS = ("max_loaded", "memory_budget", "gpu_memory_budget")
SERVER_OPTIONS = (
    *(
        "body_limit",
        "max_json_body",
        "grpc",
        "monitor",
        "repository",
        "infer_token_file",
        "control_token_file",
    ),
    *("tls_cert", "tls_key", "access_log", "forwarded_allow_ips", "no_introspection"),
    "otel",
)
WORKERS = "worker_num"
"""worker processes of a `Streamer`; for a folder: those that its models share"""


def add_hub_options(add: Add) -> None:
    """Add the options of a server of many models."""
    add("--max-loaded", type=int, help="most models of a folder that are loaded (no limit)")
    add("--memory-budget", metavar="SIZE", help='most memory of them, such as "12GB" (no limit)')
    add("--gpu-memory-budget", metavar="SIZE", help="the same for all GPUs together (no limit)")
    add(
        "--grpc",
        type=place,
        metavar="HOST:PORT",
        help='also serve them over gRPC there (needs the extra "grpc")',
    )
    add(
        "--body-limit",
        metavar="SIZE",
        help='most bytes of a request, such as "64MiB" (64MiB)',
    )
    add(
        "--max-json-body",
        metavar="SIZE",
        help='most bytes of JSON in it; binary tensors are not JSON ("16MiB")',
    )
    add(
        "--monitor",
        type=place,
        metavar="HOST:PORT",
        help='also serve their page and metrics there (needs the extra "web" and uvicorn)',
    )
    add(
        "--control-token-file",
        metavar="FILE",
        help="contains tokens that may load and unload models, one a line; also on the page",
    )
    add(
        "--infer-token-file",
        metavar="FILE",
        help="contains tokens without which no model may be asked, one a line (none)",
    )
    add(
        "--repository",
        choices=["read-only", "token", "open"],
        metavar="WHO",
        help="may load and unload: read-only (nobody), token or open (read-only without tokens)",
    )
    add("--tls-cert", metavar="FILE", help="the certificate, and those that sign it (no TLS)")
    add("--tls-key", metavar="FILE", help="its key (in the file of the certificate)")
    add(
        "--access-log", action="store_true", help="log each request, with --log-format json as JSON"
    )
    add(
        "--otel",
        action="store_true",
        help='make spans of their requests, below those of clients (needs the extra "otel")',
    )
    add(
        "--no-introspection",
        action="store_true",
        help="tell no statistics and configurations of models",
    )
    add(
        "--forwarded-allow-ips",
        metavar="IPS",
        help="proxies whose X-Forwarded-For and -Proto count, with commas; * is all (127.0.0.1)",
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
    try:
        return ModelHub.watch(name, **given)
    except ValueError as error:
        raise CommandError(str(error)) from None


def serve_hub(
    name: str,
    found: Any,
    *,
    http: Place | None,
    grpc: Place | None = None,
    monitor: Place | None = None,
    repository: str | None = None,
    infer_token_file: str | None = None,
    control_token_file: str | None = None,
    drain_timeout: float | None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    access_log: bool = False,
    forwarded_allow_ips: str | None = None,
    no_introspection: bool = False,
    otel: bool = False,
    **options: Any,
) -> int:
    """Serve many models until a signal comes."""
    if http is None and grpc is None:
        raise CommandError(f"{name} is served at an address: give --http or --grpc HOST:PORT")
    from ..server._app import access_of
    from ..server._http.asgi import AsgiApplication
    from ..server._http.bodies import BODY_LIMIT, JSON_LIMIT, Bodies
    from ..server._http.routes import Application
    from ..server._service import Service
    from ..server._serving import Front, serve

    if otel:
        from ..otel import instrument
    if http is not None:
        from ..server._http.front import HttpFront
    if grpc is not None:
        from ..server._grpc.front import GrpcFront

    try:
        limit = _options.memory("--body-limit", options.pop("body_limit", None)) or BODY_LIMIT
        json_limit = _options.memory("--max-json-body", options.pop("max_json_body", None))
        access = access_of(repository, infer_token_file, control_token_file)
    except ValueError as error:
        raise CommandError(str(error)) from None
    tls = _tls(tls_cert, tls_key)
    if access_log:
        logs.set_up_access_log()
    web: dict[str, Any] = {
        "forwarded_allow_ips": forwarded_allow_ips,
        **{f"ssl_{part}file": path for part, path in tls.items()},
    }

    def fronts() -> Sequence[Front]:
        found: list[Front] = []
        if listener is not None:
            app = AsgiApplication(
                Application(service, access), Bodies(limit, json_limit or JSON_LIMIT)
            )
            url = url_of(listener, bool(tls))
            found.append(HttpFront(app, listener, url, access_log, **web))
        if grpc is not None:
            with _listening("--grpc", grpc):
                found.append(GrpcFront(service, grpc, limit, access, _credentials(tls), access_log))
        if pages is not None:
            collector = functools.partial(_collector, service)
            pages.start(hub, _control(access), collector, service.closing, **web)
        return found

    with contextlib.ExitStack() as stack:
        pages = stack.enter_context(http_server(monitor, "--monitor"))  # answers during the drain
        listener = None
        if http is not None:
            listener = listen(http, "--http")
            stack.callback(end_listening, listener, http)
        hub = open_hub(name, found, options)
        if options:
            refused = ", ".join(map(flag, options))
            hub.close()
            raise CommandError(f"{refused}: not for a ModelHub: its models have their own options")
        if otel:
            instrument(hub)
        service = Service(hub, not no_introspection)
        serve(hub, service, fronts, say=say, drain_timeout=drain_timeout)
    return 0


def _tls(cert: str | None, key: str | None) -> dict[str, str]:
    """Return the files of TLS by their part; empty: there is none.

    Raises:
        CommandError: they are no certificate and its key.
    """
    if cert is None:
        if key is not None:
            raise CommandError("--tls-key needs --tls-cert FILE")
        return {}
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise CommandError(f"--tls-cert: {cert} with the key {key or cert}: {error}") from None
    return {"cert": cert, "key": key or cert}


def _credentials(tls: dict[str, str]) -> Any:
    """Return the credentials of a server of gRPC; None: it has no TLS."""
    if not tls:
        return None
    import grpc

    cert, key = (Path(tls[part]).read_bytes() for part in ("cert", "key"))
    return grpc.ssl_server_credentials([(key, cert)])


def _control(access: Access) -> Any:
    """Return what allows changes on the page."""
    if access.repository == "read-only":
        return None
    from ..server._errors import failure
    from ..web._control import Refused, TokenCheck

    def check(authorization: str | None, client: str) -> None:
        try:
            access.check("control", authorization, client)
        except StreamerError as error:
            found = failure(error)
            raise Refused(found.status, found.message) from None

    return TokenCheck(check, access.repository == "token" or access.needs_tokens)


def _collector(service: Service) -> Any:
    from ..server._metrics import ServerCollector  # requires prometheus-client

    return ServerCollector(service.counts)


@contextlib.contextmanager
def _listening(option: str, place: Place) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise CommandError(f"{option}: cannot listen at {shown(place)}: {why}") from None


def check_no_hub_options(name: str, options: dict[str, Any]) -> None:
    """Raise CommandError if an option is for a hub only."""
    refused = [option for option in (*HUB_OPTIONS, *SERVER_OPTIONS) if option in options]
    if refused:
        raise CommandError(f"{', '.join(map(flag, refused))}: {name} is one model, not a ModelHub")
