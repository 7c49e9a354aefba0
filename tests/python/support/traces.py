"""Reading traces, and the rules that each must follow."""

import collections
import gzip
import json
import struct


def read(path):
    """The entries and the metadata of a valid trace."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    return parsed(data)


def parsed(data):
    trace = json.loads(data)
    check(trace["traceEvents"])
    return trace["traceEvents"], trace["metadata"]


def check(entries):
    """Assert the rules of the format that viewers rely on."""
    named, last, enclosing = set(), collections.defaultdict(int), collections.defaultdict(list)
    begun, ended, sources, targets = {}, {}, {}, []
    for entry in entries:
        phase = entry["ph"]
        if phase == "M":
            named.add((entry["name"], entry["pid"], entry["tid"]))
            continue
        begin = nanoseconds(entry["ts"])
        assert begin >= 0
        if entry.get("flow_out"):
            assert entry["bind_id"] not in sources
            sources[entry["bind_id"]] = begin
        if entry.get("flow_in"):
            targets.append((entry["bind_id"], begin))
        if phase in "be":
            key = (entry["pid"], entry["cat"], entry["id"], entry["name"])
            here = begun if phase == "b" else ended
            assert key not in here
            here[key] = begin
            continue
        track = (phase, entry["pid"], entry.get("tid"), entry["name"] if phase == "C" else "")
        assert begin >= last[track], "the times of a track never decrease"
        last[track] = begin
        if phase == "C":
            assert all(value >= 0 for value in entry["args"].values())
        else:
            assert phase == "X"
            end = begin + nanoseconds(entry["dur"])
            assert end >= begin
            stack = enclosing[track]
            while stack and stack[-1] <= begin:
                stack.pop()
            assert not stack or end <= stack[-1], "the slices of a track are nested or disjoint"
            stack.append(end)
            assert ("thread_name", entry["pid"], entry["tid"]) in named
            assert any(each[:2] == ("process_name", entry["pid"]) for each in named)
    assert begun.keys() == ended.keys()
    assert all(begun[key] <= ended[key] for key in begun)
    assert all(sources[number] <= begin for number, begin in targets)


def nanoseconds(micros):
    return int(micros * 1000)  # as a viewer does


def batches(entries):
    return [entry for entry in entries if entry.get("cat") == "batch"]


def phases(entries):
    return [entry["name"] for entry in entries if entry.get("cat") == "phase"]


def requests(entries):
    """The begin of each request with the outcome of its end."""
    outcomes = {entry["id"]: entry["args"]["outcome"] for entry in entries if entry["ph"] == "e"}
    return [{**entry, "outcome": outcomes[entry["id"]]} for entry in entries if entry["ph"] == "b"]


def arrows(entries):
    """The items of each request in each batch, by the numbers of both."""
    found, batch = {}, None
    for entry in entries:
        if entry.get("cat") == "batch":
            batch = entry["args"]["batch"]
        elif entry.get("flow_in"):
            found[entry["bind_id"], batch] = entry["args"]["items"]
    return found


REASONS = ["full", "idle"]
OUTCOMES = ["none", "answered", "failed"]


def recording(*events, end=1000, oldest=0):
    """What the core returns for events, each a tuple (time, kind) and other fields."""
    header = {"pid": 1, "start": 0, "end": end, "unix_start": 0.0, "lost": 0, "oldest": oldest}
    data = b""
    for time, kind, fields in events:
        values = {"value": 0, "batch": 0, "worker": 0, "items": 0, "priority": 0, "detail": 0}
        assert fields.keys() <= values.keys()
        values |= fields
        detail = values.pop("detail")
        data += struct.pack("<qQIIIiIHBB", time, *values.values(), 0, 0, kind, detail)
    data += b"\n"
    return data + json.dumps({**header, "close_reasons": REASONS, "outcomes": OUTCOMES}).encode()
