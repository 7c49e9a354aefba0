"""Where the broker is: what a `redis_broker` argument says, and which server that means now."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import urllib.parse
from collections.abc import Callable
from typing import Any

from .links import native

PORTS = {"redis": 6379, "sentinel": 26379, "cluster": 6379}
HELP = (
    'redis_broker must be "host:port" or a URL with redis://, rediss://, unix://, '
    "redis+sentinel://host:port,host:port/service or redis+cluster://host:port"
)

Ask = Callable[["Server", tuple[Any, ...]], Any]
"""sends one command to a server and returns its reply"""


@dataclasses.dataclass(frozen=True)
class Server:
    """One server: what a redis-py connection class is made with."""

    connection_class: Any
    options: dict[str, Any]

    def at(self, host: str, port: int, **options: Any) -> Server:
        """Return one at another place with the same settings, or these."""
        changed = {**self.options, "host": host, "port": port, **options}
        return Server(self.connection_class, changed)

    def link(self) -> Any:
        """Make a connection of redis-py, which is not connected yet."""
        return native(self.connection_class)(**self.options)

    def __str__(self) -> str:
        if "path" in self.options:
            return str(self.options["path"])
        return f"{self.options['host']}:{self.options['port']}"


class Address:
    """What a `redis_broker` argument says.

    Raises:
        ValueError, TypeError: it says nothing that is understood; without its password.
    """

    def __init__(self, broker: str, key: bytes) -> None:
        if not isinstance(broker, str):
            raise TypeError(f"{HELP}, not {broker!r}")
        self.text = without_password(broker)
        """as it may be shown"""
        scheme, _, rest = broker.rpartition("://")
        self.kind = "redis"
        self._key = key
        hosts: list[tuple[str, int]] = []
        self._service = ""
        if (not scheme and not rest.partition(":")[0]) or not rest:
            raise ValueError(f"{HELP}, not {self.text!r}")
        if scheme in ("", "redis", "rediss"):
            url = f"{scheme or 'redis'}://{rest}"
        elif scheme == "unix":
            url = broker
        elif match := re.fullmatch(r"(rediss?)\+(sentinel|cluster)", scheme):
            self.kind = match[2]
            url, hosts = self._several(match[1], rest)
        else:
            raise ValueError(f"{HELP}, not {self.text!r}")
        try:
            self._server = _server(url)
            _check_timeouts(self._server.options)
            _check_files(self._server.options)
        except TypeError as error:  # an option that is none
            raise ValueError(f"{HELP}, not {self.text!r}: {error}") from None
        except ValueError:  # its text may have a piece of the password
            raise ValueError(f"{HELP}, not {self.text!r}") from None
        self._hosts = hosts

    @property
    def timeout(self) -> float:
        """Seconds after which a server that says nothing is given up."""
        return float(self._server.options["socket_timeout"])

    @property
    def moves(self) -> bool:
        """Whether another server may take its place, so that it pays to ask again which one."""
        return self.kind != "redis"

    def server(self, ask: Ask) -> Server:
        """Find out which server it is now. May ask several, and raises what the last one did."""
        if not self.moves:
            return self._server
        last: BaseException = LookupError("no hosts")
        for host in self._hosts:
            try:
                return self._master(host, ask) if self.kind == "sentinel" else self._node(host, ask)
            except Exception as error:
                last = error
        raise last

    def _several(self, scheme: str, rest: str) -> tuple[str, list[tuple[str, int]]]:
        """Split ``user:password@host:port,host:port/service/db?options``."""
        place, question, query = rest.partition("?")
        place, _, path = place.partition("/")
        user, at, names = place.rpartition("@")
        hosts = [_host(name, PORTS[self.kind], self.text) for name in names.split(",")]
        parts = path.split("/") if path else []
        if self.kind == "sentinel":
            if not parts or not parts[0]:
                raise ValueError(f"{HELP}, not {self.text!r}: the service is missing")
            self._service = urllib.parse.unquote(parts.pop(0))
        elif parts and parts not in (["0"], [""]):
            raise ValueError(f"a Redis Cluster has no database but 0: {self.text!r}")
        # the host is only there to be replaced
        url = f"{scheme}://{user}{at}host/{'/'.join(parts)}{question}{query}"
        return url, hosts

    def _master(self, host: tuple[str, int], ask: Ask) -> Server:
        options = dict(self._server.options)
        sentinel = Server(self._server.connection_class, options).at(
            *host,
            db=0,
            username=options.pop("sentinel_username", None),
            password=options.pop("sentinel_password", None),
        )
        sentinel.options.pop("sentinel_username", None)
        sentinel.options.pop("sentinel_password", None)
        found = ask(sentinel, ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service))
        if found is None:
            raise LookupError(f"the sentinel {sentinel} knows no service {self._service!r}")
        return Server(self._server.connection_class, options).at(found[0].decode(), int(found[1]))

    def _node(self, host: tuple[str, int], ask: Ask) -> Server:
        from redis.crc import key_slot

        seed = self._server.at(*host)
        slot = key_slot(self._key)
        for first, end, node, *_ in ask(seed, ("CLUSTER", "SLOTS")):
            if first <= slot <= end:
                # a node that does not know its own name is the one that was asked
                name = node[0].decode() if node[0] else host[0]
                return self._server.at(name, int(node[1]))
        raise LookupError(f"no node of the cluster at {seed} has the hash slot {slot}")


def without_password(broker: str) -> str:
    """Return what may be shown of it."""
    hidden = re.sub(r"(?<=[?&])((?:\w+_)?password)=[^&]*", r"\1=***", broker)
    return re.sub(r"(?<=://)([^/@:]*):.*@", r"\1:***@", hidden)  # also of one with / or @ in it


def _server(url: str) -> Server:
    from redis.connection import Connection, parse_url

    options: dict[str, Any] = dict(parse_url(url))
    connection_class = options.pop("connection_class", Connection)
    for name in ("max_connections", "timeout", "decode_responses"):
        options.pop(name, None)  # a pool's, and what would be no longer bytes
    if connection_class is Connection or "path" not in options:
        options.setdefault("host", "localhost")
        options.setdefault("port", PORTS["redis"])
    options.setdefault("socket_timeout", 15.0)
    options.setdefault("socket_connect_timeout", 5.0)
    options["protocol"] = 2
    checked = {name: value for name, value in options.items() if not name.startswith("sentinel_")}
    connection_class(**checked)  # TypeError for an option that it does not know
    return Server(connection_class, options)


def _check_timeouts(options: dict[str, Any]) -> None:
    """Notice what a socket would not take, or 0, with which it would not wait at all."""
    for name in ("socket_timeout", "socket_connect_timeout"):
        if not 0 < options[name] < math.inf:
            raise TypeError(f"{name} must be more than 0 seconds, not {options[name]}")


def _check_files(options: dict[str, Any]) -> None:
    """Notice what TLS would miss at each connection; raise what a wrong option does."""
    for name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile"):
        path = options.get(name)
        if path is not None and not os.path.isfile(path):
            raise TypeError(f"{name}: there is no file {path!r}")


def _host(name: str, port: int, shown: str) -> tuple[str, int]:
    split = urllib.parse.urlsplit(f"//{name}")
    try:
        host, given = split.hostname, split.port
    except ValueError:
        host, given = None, None
    if not host:
        raise ValueError(f"{HELP}, not {shown!r}")
    return host, port if given is None else given
