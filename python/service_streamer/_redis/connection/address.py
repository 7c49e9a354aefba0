"""Parses the `redis_broker` argument, and finds the server that it currently stands for."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import urllib.parse
from collections.abc import Callable
from typing import Any

from ..._base.messages import wrong_option
from .raw_connections import native_class

PORTS = {"redis": 6379, "sentinel": 26379, "cluster": 6379}
HELP = (
    'redis_broker must be "host:port" or a URL with redis://, rediss://, unix://, '
    "redis+sentinel://host:port,host:port/service or redis+cluster://host:port"
)

Ask = Callable[["Server", tuple[Any, ...]], Any]
"""sends one command to a server and returns its reply"""


@dataclasses.dataclass(frozen=True)
class Server:
    """One server: a connection class of redis-py and its arguments."""

    connection_class: Any
    options: dict[str, Any]

    def at(self, host: str, port: int, **options: Any) -> Server:
        """Return a server at another host and port, with the same or the given settings."""
        changed = {**self.options, "host": host, "port": port, **options}
        return Server(self.connection_class, changed)

    def raw_connection(self) -> Any:
        """Return a new raw connection, which is not connected yet."""
        return native_class(self.connection_class)(**self.options)

    def __str__(self) -> str:
        if "path" in self.options:
            return str(self.options["path"])
        return f"{self.options['host']}:{self.options['port']}"


class Address:
    """A parsed `redis_broker` argument.

    Raises:
        ValueError, TypeError: it is invalid. The message does not contain the password.
    """

    def __init__(self, broker: str, key: bytes) -> None:
        if not isinstance(broker, str):
            raise wrong_option(f"{HELP}, not {broker!r}", TypeError)
        self.text = without_password(broker)
        """the argument without its password, for messages"""
        scheme, _, rest = broker.rpartition("://")
        self.kind = "redis"
        self._key = key
        hosts: list[tuple[str, int]] = []
        self._service = ""
        if (not scheme and not rest.partition(":")[0]) or not rest:
            raise wrong_option(f"{HELP}, not {self.text!r}")
        if scheme in ("", "redis", "rediss"):
            url = f"{scheme or 'redis'}://{rest}"
        elif scheme == "unix":
            url = broker
        elif match := re.fullmatch(r"(rediss?)\+(sentinel|cluster)", scheme):
            self.kind = match[2]
            url, hosts = self._several(match[1], rest)
        else:
            raise wrong_option(f"{HELP}, not {self.text!r}")
        try:
            self._server = _server(url)
            _check_timeouts(self._server.options)
            _check_files(self._server.options)
        except TypeError as error:  # an unknown or invalid option
            raise wrong_option(f"{HELP}, not {self.text!r}: {error}") from None
        except ValueError:  # its text may contain part of the password
            raise wrong_option(f"{HELP}, not {self.text!r}") from None
        self._hosts = hosts

    @property
    def timeout(self) -> float:
        """The socket timeout in seconds."""
        return float(self._server.options["socket_timeout"])

    @property
    def moves(self) -> bool:
        """True if the server may change, because a sentinel or a cluster node names it."""
        return self.kind != "redis"

    def server(self, ask: Ask) -> Server:
        """Return the current server. Asks the given hosts in turn; raises the error of the last."""
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
                raise wrong_option(f"{HELP}, not {self.text!r}: the service is missing")
            self._service = urllib.parse.unquote(parts.pop(0))
        elif parts and parts not in (["0"], [""]):
            raise wrong_option(f"a Redis Cluster has only database 0, not the one in {self.text!r}")
        # "host" is a placeholder
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
            raise LookupError(
                f"the sentinel {sentinel} does not know the service {self._service!r}"
            )
        return Server(self._server.connection_class, options).at(found[0].decode(), int(found[1]))

    def _node(self, host: tuple[str, int], ask: Ask) -> Server:
        from redis.crc import key_slot

        seed = self._server.at(*host)
        slot = key_slot(self._key)
        for first, end, node, *_ in ask(seed, ("CLUSTER", "SLOTS")):
            if first <= slot <= end:
                # an empty name stands for the node that was asked
                name = node[0].decode() if node[0] else host[0]
                return self._server.at(name, int(node[1]))
        raise LookupError(f"no node of the cluster at {seed} has the hash slot {slot}")


def without_password(broker: str) -> str:
    """Return the address with *** in place of passwords."""
    hidden = re.sub(r"(?<=[?&])((?:\w+_)?password)=[^&]*", r"\1=***", broker)
    return re.sub(r"(?<=://)([^/@:]*):.*@", r"\1:***@", hidden)  # the password may contain / or @


def _server(url: str) -> Server:
    from redis.connection import Connection, parse_url

    options: dict[str, Any] = dict(parse_url(url))
    connection_class = options.pop("connection_class", Connection)
    for name in ("max_connections", "timeout", "decode_responses"):
        options.pop(name, None)  # options of a pool; decode_responses would return str
    if connection_class is Connection or "path" not in options:
        options.setdefault("host", "localhost")
        options.setdefault("port", PORTS["redis"])
    options.setdefault("socket_timeout", 15.0)
    options.setdefault("socket_connect_timeout", 5.0)
    options["protocol"] = 2
    checked = {name: value for name, value in options.items() if not name.startswith("sentinel_")}
    connection_class(**checked)  # raises TypeError for an unknown option
    return Server(connection_class, options)


def _check_timeouts(options: dict[str, Any]) -> None:
    """Raise TypeError for a timeout that is not positive and finite."""
    for name in ("socket_timeout", "socket_connect_timeout"):
        if not 0 < options[name] < math.inf:
            raise TypeError(f"{name} must be more than 0 seconds, not {options[name]}")


def _check_files(options: dict[str, Any]) -> None:
    """Raise TypeError for a TLS file that does not exist."""
    for name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile"):
        path = options.get(name)
        if path is not None and not os.path.isfile(path):
            raise TypeError(f"{name}: the file {path!r} does not exist")


def _host(name: str, port: int, shown: str) -> tuple[str, int]:
    split = urllib.parse.urlsplit(f"//{name}")
    try:
        host, given = split.hostname, split.port
    except ValueError:
        host, given = None, None
    if not host:
        raise wrong_option(f"{HELP}, not {shown!r}")
    return host, port if given is None else given
