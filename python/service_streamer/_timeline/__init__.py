"""Recordings of a streamer, as timelines that Perfetto and Chrome show.

`Recorder` is what ``streamer.record`` returns. `to_chrome` turns the events of an engine into a
trace file. Nothing is imported from here before a streamer is recorded.
"""

from ._chrome import to_chrome
from ._recorder import AlreadyRecording, Recorder, Wait, trace_of

__all__ = ["AlreadyRecording", "Recorder", "Wait", "to_chrome", "trace_of"]
