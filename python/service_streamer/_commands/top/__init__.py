"""``top``: the live numbers of a streamer in a terminal."""

from .command import add_to, run

__all__ = ["add_to", "run"]
