"""Recordings of a streamer, as timelines that Perfetto and Chrome show.

`Recorder` is what ``streamer.record`` returns. `to_chrome` turns the events of an engine into a
trace file. Nothing is imported from here before it is needed.
"""

from .chrome import to_chrome
from .recorder import Recorder, Wait, trace_of

__all__ = ["Recorder", "Wait", "to_chrome", "trace_of"]
