"""Traces of recordings that the test writes itself."""

import pytest
import traces
from hypothesis import given
from hypothesis import strategies as st

from service_streamer._streamers.timeline import to_chrome
from service_streamer._streamers.timeline.chrome import _micros
from service_streamer._streamers.timeline.events import Kind


def trace(*events, **options):
    entries, _ = traces.parsed(to_chrome(traces.recording(*events, **options), "name"))
    return entries


def event(time, kind, **fields):
    return time, kind, fields


def shape(entry):
    keys = ("pid", "tid", "name")
    times = (traces.nanoseconds(entry["ts"]), traces.nanoseconds(entry["dur"]))
    return (*(entry[key] for key in keys), *times, entry["args"]["outcome"])


def test_an_empty_recording_is_a_valid_trace():
    entries, metadata = traces.parsed(to_chrome(traces.recording(), "name"))
    assert [entry["args"] for entry in entries] == [{"name": "name"}]
    assert (metadata["streamer"], metadata["lost_events"], metadata["seconds"]) == ("name", 0, 1e-6)


def test_what_began_before_the_first_event_is_left_out():
    entries = trace(
        event(1, Kind.PART, value=8, batch=1, items=1),
        event(2, Kind.COMPLETED, batch=1),
        event(3, Kind.ENDED, value=8, detail=1),
        event(4, Kind.ARRIVED, value=8, items=1),
        event(5, Kind.ENDED, value=8, detail=1),
    )
    assert traces.batches(entries) == []
    assert [each["ts"] for each in traces.requests(entries)] == [0.004]


def test_an_address_may_be_used_again():
    entries = trace(
        event(1, Kind.ARRIVED, value=8, items=1),
        event(2, Kind.ENDED, value=8, detail=1),
        event(3, Kind.ARRIVED, value=8, items=1),
        event(4, Kind.CUT, batch=1, worker=7, items=1),
        event(4, Kind.PART, value=8, batch=1, items=1),
    )
    assert traces.arrows(entries) == {(2, 1): 1}
    assert [each["outcome"] for each in traces.requests(entries)] == ["answered", "unfinished"]


def test_batches_of_one_thread_that_overlap_have_tracks_of_their_own():
    entries = trace(
        event(1, Kind.CUT, batch=1, worker=7, items=1),
        event(3, Kind.CUT, batch=2, worker=7, items=1),
        event(5, Kind.COMPLETED, batch=1, detail=1),
        event(5, Kind.CUT, batch=3, worker=7, items=1),
        event(7, Kind.COMPLETED, batch=2, detail=1),
        event(8, Kind.COMPLETED, batch=3, detail=1),
    )
    first, third, second = traces.batches(entries)
    assert [each["args"]["batch"] for each in (first, second, third)] == [1, 2, 3]
    assert first["tid"] == third["tid"] == 7
    assert second["tid"] != 7
    names = {each["tid"]: each["args"]["name"] for each in entries if each["name"] == "thread_name"}
    assert names == {7: "worker 1", second["tid"]: "worker 1 (2)"}


def test_a_batch_for_which_a_process_had_no_memory_runs_in_halves():
    entries = trace(
        event(1, Kind.CUT, batch=1, worker=99, items=2),
        event(2, Kind.SENT, batch=1, worker=7, items=2),
        event(4, Kind.SPLIT, batch=2, value=1, worker=99, items=1),
        event(5, Kind.SENT, batch=2, worker=7, items=1),
        event(6, Kind.COMPLETED, batch=2, detail=1),
        event(6, Kind.SENT, batch=1, worker=8, items=1),
        event(9, Kind.COMPLETED, batch=1, detail=1),
    )
    assert [shape(each) for each in traces.batches(entries)] == [
        (7, 7, "2 items", 2, 2, "out of memory"),
        (7, 7, "1 item, again", 5, 1, "answered"),
        (8, 8, "1 item, again", 6, 3, "answered"),
    ]


@pytest.mark.parametrize("predict", [2, 2000])
def test_the_phases_of_a_process_lie_in_its_batch(predict):
    entries = trace(
        event(10, Kind.CUT, batch=1, worker=99, items=1),
        event(20, Kind.SENT, batch=1, worker=7, items=1),
        event(50, Kind.DECODED, batch=1, value=3),
        event(50, Kind.PREDICTED, batch=1, value=predict),
        event(50, Kind.ENCODED, batch=1, value=5),
        event(51, Kind.COMPLETED, batch=1, detail=1),
    )
    assert traces.phases(entries) == ["transport", "decode", "predict", "encode", "transport"]


def test_the_phases_of_a_native_model_are_where_they_were():
    entries = trace(
        event(10, Kind.CUT, batch=1, worker=7, items=1),
        event(12, Kind.CUT, batch=2, worker=7, items=1),
        event(15, Kind.COLLATED, batch=1, value=5),
        event(30, Kind.COMPUTED, batch=1, value=10),
        event(41, Kind.COMPLETED, batch=1, detail=1),
        event(20, Kind.COLLATED, batch=2, value=2),
        event(42, Kind.COMPUTED, batch=2, value=1),
        event(43, Kind.COMPLETED, batch=2, detail=1),
    )
    phases = [each for each in entries if each.get("cat") == "phase"]
    times = [tuple(map(traces.nanoseconds, (each["ts"], each["dur"]))) for each in phases]
    assert traces.phases(entries) == ["collate", "compute"] * 2
    assert times == [(10, 5), (20, 10), (18, 2), (41, 1)]
    assert phases[0]["tid"] == phases[1]["tid"] != phases[2]["tid"]


def test_the_oldest_event_may_be_in_the_middle():
    entries = trace(
        event(9, Kind.ENDED, value=8, detail=1),
        event(4, Kind.ARRIVED, value=8, items=1),
        oldest=1,
    )
    assert [each["outcome"] for each in traces.requests(entries)] == ["answered"]


@given(st.integers(min_value=0, max_value=4_000_000_000_000_000))
def test_a_viewer_that_rounds_down_gets_the_exact_time(time):
    assert traces.nanoseconds(_micros(time)) == time
