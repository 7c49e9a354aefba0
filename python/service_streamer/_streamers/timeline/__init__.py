"""Recordings of a streamer, as timelines that Perfetto and Chrome show.

`Recorder` is what ``streamer.record`` returns. `to_chrome` turns the events of an engine into a
trace file. Nothing is imported from here before it is needed.
"""

from .chrome import to_chrome
from .events import Recording
from .history import BatchRun, History
from .recorder import Recorder, Wait, events_of, trace_of

__all__ = [
    "BatchRun",
    "History",
    "Recorder",
    "Recording",
    "Wait",
    "events_of",
    "to_chrome",
    "trace_of",
]
