"""Connections to the Redis broker, one per thread, and what their failures mean in words.

A connection is redis-py's, used without its pools and client classes: those lock, retry by
themselves and make dictionaries of replies, where here one thread has one connection, the callers
know best what may be sent again, and replies stay what RESP2 has: bytes, int, None, lists.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

from .._errors import BrokerError

try:
    from redis.exceptions import ReadOnlyError
    from redis.exceptions import ResponseError as ResponseError
except ImportError as _error:
    raise ImportError(
        "the package redis is missing: pip install 'service-streamer[redis]'"
    ) from _error

from .address import Address, Ask, Server
from .clock import Clock
from .failures import words
from .greeting import greet, message_limit
from .links import ask_link, shut
from .wire import Command as Command
from .wire import SlowWire, Wire, wire

BLOCK = 5.0  # s that a command may block at most: a blocked client does not see FLUSHALL (6.2)
MESSAGE_LIMIT = 512 * 2**20  # bytes of a value: Redis' proto-max-bulk-len if it does not say


class Broker:
    """A place where connections lead to.

    Args:
        redis_broker: ``host:port`` or a URL; README.md has the kinds.
        key: one of those that will be used: it decides on the node of a cluster.

    Raises:
        ValueError, TypeError: what is given is no place.
    """

    def __init__(self, redis_broker: str, key: bytes) -> None:
        self._address = Address(redis_broker, key)
        self.clock = Clock()
        self.message_limit = MESSAGE_LIMIT
        """bytes that a message may have; the broker's own setting once there is a connection"""

    @property
    def moves(self) -> bool:
        """Whether another server may take its place: that of a sentinel or cluster."""
        return self._address.moves

    def connection(self, timeout: float = math.inf) -> Connection:
        """Make a connection for one thread. It connects when it is first used.

        Args:
            timeout: seconds that the broker may say nothing, if the address does not say fewer.
        """
        return Connection(self, timeout)

    def check(self) -> None:
        """Connect once.

        Raises:
            BrokerError: that does not work, or the server will not do.
        """
        with contextlib.closing(self.connection()) as connection:
            connection.execute("PING")

    def server(self, ask: Ask) -> Server:
        """Find out which server it is now; raises what redis-py does."""
        return self._address.server(ask)

    def block_ms(self, seconds: float) -> int:
        """Return the ms that a command may block which would for so many seconds.

        It is answered long before the socket's timeout: else each one would look like an outage.
        """
        return max(1, int(1000 * min(seconds, BLOCK, self._address.timeout / 2)))

    def describe(self, error: BaseException) -> BrokerError:
        """Make the error that says in words what went wrong with this broker."""
        if isinstance(error, BrokerError):
            return error
        text, transient = words(error, self.moves) or (f"answered {error}", False)
        described = BrokerError(f"the Redis broker {self} {text}", transient)
        described.__cause__ = error
        return described

    def __str__(self) -> str:
        return self._address.text


class Connection:
    """One connection, for one thread at a time; only `interrupt` may be called by others.

    It connects when it is first used, and again after it broke. Nothing is sent twice: the caller
    decides on that.
    """

    def __init__(self, broker: Broker, timeout: float) -> None:
        self._broker = broker
        self._timeout = timeout
        self._link: Any = None  # redis-py's
        self._newest: Any = None  # the same, or one that is being made
        self._wire: Wire | SlowWire
        self._interrupted = False
        self.made = 0
        """how often it was connected: who sees another number than before has missed something"""

    def execute(self, *command: Any) -> Any:
        """Send one command and return its reply.

        Raises:
            BrokerError: the connection cannot be made, broke (`transient`), or the broker refuses
                as a whole: read-only, out of memory, no permission…
            redis.exceptions.ResponseError: the command was answered with any other error.
        """
        (reply,) = self.pipeline((command,))
        if isinstance(reply, Exception):
            raise reply
        return reply

    def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one go and return their replies.

        An error is returned in its place, described as a BrokerError or as it is: see `execute`.

        Raises:
            BrokerError: the connection cannot be made or broke: any of them may have been run.
        """
        self.connect()
        try:
            self._wire.send(commands)
            replies = self._wire.receive(len(commands))
        except BaseException as error:
            self.close()
            if isinstance(error, Exception):
                raise self._broker.describe(error) from error
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
        """Do the same within MULTI and EXEC: all of them are run, or none.

        But not more than that: one that fails when it is run stops no other.

        Raises:
            BrokerError: as `pipeline`, or the first error for which none was run.
            redis.exceptions.ResponseError: the same.
        """
        replies = self.pipeline([("MULTI",), *commands, ("EXEC",)])
        done = replies[-1]
        if isinstance(done, list):
            return [self._described(reply) for reply in done]
        refused = next((reply for reply in replies if isinstance(reply, Exception)), None)
        raise refused or BrokerError(f"the Redis broker {self._broker} has run no transaction")

    def ask(self, commands: Sequence[Command], *nothing: str) -> list[Any]:
        """Do what `pipeline` does; None is the reply to what is not there.

        Args:
            commands: what to ask.
            nothing: what an error says then.

        Raises:
            BrokerError: as `pipeline`, or the first of the other errors.
        """
        replies = self.pipeline(commands)
        for i, reply in enumerate(replies):
            if isinstance(reply, ResponseError) and any(word in str(reply) for word in nothing):
                replies[i] = None
            elif isinstance(reply, Exception):
                raise self._broker.describe(reply)
        return replies

    @property
    def connected(self) -> bool:
        """Whether it is connected, as far as it knows."""
        return self._link is not None and not self._interrupted

    def connect(self) -> None:
        """Connect, if it is not connected.

        Raises:
            BrokerError: that does not work.
        """
        if self._link is None and not self._interrupted:
            try:
                self._link = self._connected()
                self._wire = wire(self._link)
            except Exception as error:
                raise self._broker.describe(error) from error
            self.made += 1
        self._check()  # also while it was being made

    def close(self) -> None:
        """Disconnect; it may be used again."""
        link, self._link = self._link, None
        if link is not None:
            link.disconnect()

    def interrupt(self) -> None:
        """Break the connection for good: whatever blocks raises. May be called by others.

        One that is being made may go on until its network and TLS are there, or have timed out.
        """
        self._interrupted = True
        if (link := self._newest) is not None:
            shut(link)

    def _described(self, reply: Any) -> Any:
        """Describe a reply that is an error and is about more than its command."""
        known = isinstance(reply, Exception) and words(reply, self._broker.moves) is not None
        return self._broker.describe(reply) if known else reply

    def _should_move(self, error: BrokerError) -> bool:
        # a name may lead to another server by now
        return error.transient or isinstance(error.__cause__, ReadOnlyError)

    def _check(self) -> None:
        if self._interrupted:
            raise BrokerError(f"the connection to the Redis broker {self._broker} was ended", True)

    def _connected(self) -> Any:
        link = self._new(self._broker.server(self._ask))
        try:
            greet(link, self._broker.clock, self._broker.moves)
            if (limit := message_limit(link)) is not None:
                self._broker.message_limit = limit
        except BaseException:
            link.disconnect()
            raise
        return link

    def _ask(self, server: Server, command: tuple[Any, ...]) -> Any:
        """Send one command to a server, by a link just for that."""
        link = self._new(server)
        try:
            return ask_link(link, command)
        finally:
            link.disconnect()

    def _new(self, server: Server) -> Any:
        """Make a link that `interrupt` breaks: before it waits for its first reply, or then."""
        self._newest = link = server.link()
        link.redis_connect_func = self._begin
        link.socket_timeout = min(link.socket_timeout, self._timeout)
        link.socket_connect_timeout = min(link.socket_connect_timeout, self._timeout)
        self._check()
        return link

    def _begin(self, link: Any) -> None:
        link.redis_connect_func = None  # they refer to each other no longer
        self._check()
        link.on_connect()
