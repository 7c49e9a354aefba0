"""The methods of a RayStreamer beside its constructors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from .._base.errors import StreamerError
from .._base.messages import see
from .._base.options import Options
from .._base.types import Item, Piece, Replicas, Result
from .._engine.backend import Backend
from .._streamers.streamer import BaseStreamer
from .._waiting import greenlets
from .settings import RaySettings

if TYPE_CHECKING:
    from .._statistics.stats import StreamerStats
    from .client.backend import RayClient


class ReplicaControl(BaseStreamer[Item, Result, Piece]):
    """The part of `RayStreamer` that is not a constructor."""

    _needs_ready_worker = False
    _client: RayClient

    def resize(self, replicas: Replicas) -> None:
        """Change the number of replicas, or its range. Does not wait.

        Surplus replicas finish their batches and end.

        Raises:
            ValueError: `replicas` is not a positive int or a pair of them.
            RuntimeError: this is a client.
            StreamerClosed: the streamer is closed.
        """
        limits = RaySettings(replicas=replicas).limits
        self._check_open()
        if not self._client.owns:
            raise RuntimeError("resize() works only in the process that created the RayStreamer")
        greenlets.call(self._client.resize, limits)

    def stream(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise NotImplementedError: the outputs of a RayStreamer arrive as a whole."""
        raise _no_streams()

    def astream(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise NotImplementedError, as `stream` does."""
        raise _no_streams()

    # -------------------------------------------------------------------- private

    def _open(self, options: Options, owner: Any, shown: str, owns: bool, window: int) -> None:
        from .client.backend import RayClient  # Ray is an extra
        from .client.sent import Submissions

        self._shown = shown
        self._client = RayClient(options, owner, shown, owns=owns, window=window)
        super().__init__(options, self._client)
        self._engine = Submissions(self._client.engine, options, self._client.cancel)  # type: ignore[assignment]

    def _backend_in_child(self) -> Backend:
        raise StreamerError(
            see(
                f"{self._shown} cannot be used in a forked child, as Ray cannot: create or "
                "connect it after the fork",
                "a-raystreamer-in-a-forked-child",
            )
        )

    def _explanation(self, text: str, name: str, stats: StreamerStats) -> str:
        obstacle = self._client.obstacle
        return super()._explanation(f"{text}\n\n{obstacle}" if obstacle else text, name, stats)

    def _name(self) -> str:
        return self._shown


def _no_streams() -> NotImplementedError:
    return NotImplementedError(
        "a RayStreamer has no streams, its outputs arrive as a whole: use a Streamer"
    )
