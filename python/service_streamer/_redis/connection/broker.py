"""Connections to the Redis broker, one per thread, with errors that describe the cause.

They use the connection classes of redis-py without its pools and clients. Those lock, retry and
convert replies. Here a connection belongs to one thread, the caller decides what may be sent again,
and replies have the types of RESP2: bytes, int, None and list.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

from ..._base.errors import BrokerError
from ..._base.messages import missing_package

try:
    from redis.exceptions import ReadOnlyError
    from redis.exceptions import ResponseError as ResponseError
except ImportError as _error:
    raise missing_package(_error, "redis") from _error

from .address import Address, Ask, Server
from .clock import Clock
from .failures import explain_error
from .handshake import handshake, message_limit
from .raw_connections import execute_raw, shut_down
from .transport import Command as Command
from .transport import SlowTransport, Transport, open_transport

BLOCK = 5.0  # s, the most that a command blocks: Redis 6.2 does not unblock it at FLUSHALL
MESSAGE_LIMIT = 512 * 2**20  # bytes of a value, if Redis does not tell proto-max-bulk-len


class Broker:
    """The broker at an address. Creates connections to it. Does not connect itself.

    Args:
        redis_broker: ``host:port`` or a URL; README.md lists the kinds.
        key: a key that will be used; it determines the node of a cluster.

    Raises:
        ValueError, TypeError: the address is invalid.
    """

    def __init__(self, redis_broker: str, key: bytes) -> None:
        self._address = Address(redis_broker, key)
        self.clock = Clock()
        self.message_limit = MESSAGE_LIMIT
        """most bytes of a message: the broker's setting, known after the first connection"""

    @property
    def moves(self) -> bool:
        """True if the server may change, because a sentinel or a cluster node names it."""
        return self._address.moves

    def connection(self, timeout: float = math.inf) -> Connection:
        """Return a new connection for one thread. It connects when it is first used.

        Args:
            timeout: most seconds to wait for the broker, if the address has no shorter timeout.
        """
        return Connection(self, timeout)

    def check(self) -> None:
        """Connect once and disconnect.

        Raises:
            BrokerError: the connection fails, or the server cannot be used.
        """
        with contextlib.closing(self.connection()) as connection:
            connection.execute("PING")

    def server(self, ask: Ask) -> Server:
        """Return the current server. Raises the exceptions of redis-py."""
        return self._address.server(ask)

    def block_ms(self, seconds: float) -> int:
        """Return the BLOCK argument, in ms, of a command that should block for `seconds`.

        It is limited to half of the socket timeout, so that a blocked command is no outage.
        """
        return max(1, int(1000 * min(seconds, BLOCK, self._address.timeout / 2)))

    def describe(self, error: BaseException) -> BrokerError:
        """Return the `BrokerError` for an error of this broker."""
        if isinstance(error, BrokerError):
            return error
        text, transient = explain_error(error, self.moves) or (f"answered {error}", False)
        described = BrokerError(f"the Redis broker {self} {text}", transient)
        described.__cause__ = error
        return described

    def __str__(self) -> str:
        return self._address.text


class Connection:
    """A connection for one thread. Any thread may call `interrupt`.

    It connects when it is first used, and reconnects after a failure. It never sends a command
    again; that is the decision of the caller.
    """

    def __init__(self, broker: Broker, timeout: float) -> None:
        self._broker = broker
        self._timeout = timeout
        self._raw: Any = None  # the raw connection
        self._newest: Any = None  # the same, or one that is being connected
        self._transport: Transport | SlowTransport
        self._interrupted = False
        self.made = 0
        """number of connects; a change tells the caller that replies may have been lost"""

    def execute(self, *command: Any) -> Any:
        """Send one command and return its reply.

        Raises:
            BrokerError: the connection failed (`transient`), or the broker rejects the command
                for a general reason: read-only, out of memory, no permission…
            redis.exceptions.ResponseError: any other error reply.
        """
        (reply,) = self.pipeline((command,))
        if isinstance(reply, Exception):
            raise reply
        return reply

    def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one round trip and return their replies.

        An error reply is an element of the list: a BrokerError or a ResponseError, as in `execute`.

        Raises:
            BrokerError: the connection failed. Any of the commands may have been run.
        """
        self.send(commands)
        return self.receive(len(commands))

    def send(self, commands: Sequence[Command]) -> None:
        """Send commands. Their replies are the next ones to `receive`.

        Raises:
            BrokerError: the connection failed.
        """
        self.connect()
        try:
            self._transport.send(commands)
        except BaseException as error:
            self._close_after(error)
            raise

    def receive(self, count: int) -> list[Any]:
        """Return the replies to the next `count` commands that were sent, as `pipeline` does.

        They must have been sent on this connection: `made` tells.

        Raises:
            BrokerError: the connection failed.
        """
        try:
            replies = self._transport.receive(count)
        except BaseException as error:
            self._close_after(error)
            raise
        for i, reply in enumerate(replies):
            if isinstance(reply, Exception):
                replies[i] = described = self._described(reply)
                if isinstance(described, BrokerError) and self._should_move(described):
                    self.close()
                    if described.transient:
                        raise described
        return replies

    def transaction(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands within MULTI and EXEC and return their replies.

        Either all commands run or none. A command that fails when it runs does not stop the others.

        Raises:
            BrokerError: as for `pipeline`, or the error because of which no command ran.
            redis.exceptions.ResponseError: the error because of which no command ran.
        """
        replies = self.pipeline([("MULTI",), *commands, ("EXEC",)])
        done = replies[-1]
        if isinstance(done, list):
            return [self._described(reply) for reply in done]
        refused = next((reply for reply in replies if isinstance(reply, Exception)), None)
        raise refused or BrokerError(f"the Redis broker {self._broker} did not run the transaction")

    def query(self, commands: Sequence[Command], *missing: str) -> list[Any]:
        """Do what `pipeline` does, but return None for an object that does not exist.

        Args:
            commands: to send.
            missing: texts by which the error replies for missing objects are recognised.

        Raises:
            BrokerError: as for `pipeline`, or for any other error reply.
        """
        replies = self.pipeline(commands)
        for i, reply in enumerate(replies):
            if isinstance(reply, ResponseError) and any(text in str(reply) for text in missing):
                replies[i] = None
            elif isinstance(reply, Exception):
                raise self._broker.describe(reply)
        return replies

    @property
    def connected(self) -> bool:
        """True if it is connected and no failure is known."""
        return self._raw is not None and not self._interrupted

    def connect(self) -> None:
        """Connect, unless it is connected.

        Raises:
            BrokerError: the connection failed or was interrupted.
        """
        if self._raw is None and not self._interrupted:
            try:
                self._raw = self._open_raw()
                self._transport = open_transport(self._raw)
            except Exception as error:
                raise self._broker.describe(error) from error
            self.made += 1
        self._check()  # it may have been interrupted meanwhile

    def close(self) -> None:
        """Disconnect. The next use connects again."""
        raw, self._raw = self._raw, None
        if raw is not None:
            raw.disconnect()

    def interrupt(self) -> None:
        """Break the connection for good; blocked calls raise. Any thread.

        A connect in progress may continue until TCP and TLS are established or have timed out.
        """
        self._interrupted = True
        if (raw := self._newest) is not None:
            shut_down(raw)

    def _close_after(self, error: BaseException) -> None:
        """Close the connection. Raises a `BrokerError`, if the error is an exception."""
        self.close()
        if isinstance(error, Exception):
            raise self._broker.describe(error) from error

    def _described(self, reply: Any) -> Any:
        """Convert an error reply that concerns more than its command to a BrokerError."""
        known = (
            isinstance(reply, Exception) and explain_error(reply, self._broker.moves) is not None
        )
        return self._broker.describe(reply) if known else reply

    def _should_move(self, error: BrokerError) -> bool:
        # the address may resolve to another server now
        return error.transient or isinstance(error.__cause__, ReadOnlyError)

    def _check(self) -> None:
        if self._interrupted:
            raise BrokerError(
                f"the connection to the Redis broker {self._broker} was interrupted", True
            )

    def _open_raw(self) -> Any:
        raw = self._new(self._broker.server(self._query_server))
        try:
            handshake(raw, self._broker.clock, self._broker.moves)
            if (limit := message_limit(raw)) is not None:
                self._broker.message_limit = limit
        except BaseException:
            raw.disconnect()
            raise
        return raw

    def _query_server(self, server: Server, command: tuple[Any, ...]) -> Any:
        """Send one command to a server on a temporary raw connection."""
        raw = self._new(server)
        try:
            return execute_raw(raw, command)
        finally:
            raw.disconnect()

    def _new(self, server: Server) -> Any:
        """Return a raw connection that `interrupt` can break, also while it connects."""
        self._newest = raw = server.raw_connection()
        raw.redis_connect_func = self._begin
        raw.socket_timeout = min(raw.socket_timeout, self._timeout)
        raw.socket_connect_timeout = min(raw.socket_connect_timeout, self._timeout)
        self._check()
        return raw

    def _begin(self, raw: Any) -> None:
        raw.redis_connect_func = None  # breaks the reference cycle
        self._check()
        raw.on_connect()
