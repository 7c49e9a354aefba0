"""The command ``bench``: its arguments and its output."""

from __future__ import annotations

import json
import logging
import os
from typing import Any

from ..options import (
    CommandError,
    add_devices,
    add_model_options,
    add_placement,
    fill_in,
    in_seconds,
    new_parser,
    read_sample,
    read_secret,
)
from . import report, table
from .advice import advise, knee_sentence, limit_sentence
from .plan import Plan, measure
from .results import Results
from .targets import Settings, open_target

_CLIENTS = (1, 2, 4, 8, 16, 32, 64, 128)
_SHARES = (0.2, 0.4, 0.6, 0.8, 0.9, 1.0)
_QUICK = Plan((1, 4, 16, 64), (0.3, 0.6, 0.9), 2, 8.0)

_EXAMPLE = """
TARGET is
  module:Model          a predict function or ManagedModel class, run in a thread of this process;
                        with --workers, or worker_num in the file of --options, in worker processes
  model.onnx            the same of an ONNX file
  ADDRESS               the address of a Streamer that runs
  redis://broker:6379   a queue at a Redis broker, with --prefix; or broker:6379
  http://host/path      a web service; each request POSTs --body, or sample items as a JSON list

The closed loop has clients that send their next request when they have the answer. In the open loop
requests are due at random times. Latency counts from when a request was due, so the time that it
could not be sent is part of it (no coordinated omission).

examples:
  service-streamer bench my_model:Sentiment --workers 2 --items '["hello", "good morning"]'
  service-streamer bench /run/sentiment.sock --items '["hello"]' --quick
  service-streamer bench http://127.0.0.1:5000/stream --body request.json
"""


def add_to(commands: Any) -> None:
    """Add the parser of the command."""
    parser = new_parser(
        commands,
        "bench",
        run,
        help="measure throughput and latency against load",
        description="Measures throughput and latency against load; writes a report as HTML.",
        epilog=_EXAMPLE,
    )
    add = parser.add_argument
    add("target", metavar="TARGET", help="what is measured, see below")
    items = parser.add_mutually_exclusive_group().add_argument
    items("--items", type=json.loads, metavar="JSON", default=None, help="a list of sample items")
    items("--sample", default=None, metavar="FILE", help="a file with that list, as for tune")
    add("--items-per-request", type=int, default=1, metavar="N", help="items of one request (1)")
    add(
        *("-o", "--report"),
        dest="path",
        default="service-streamer-bench.html",
        metavar="FILE",
        help="where the report is written (service-streamer-bench.html)",
    )
    add("--quick", action="store_true", default=False, help="fewer loads, about 10 seconds")
    add("--seconds", type=in_seconds, default=None, help="time for all measurements (50)")
    add("--clients", type=int, nargs="+", default=None, metavar="N", help="of the closed loop")
    add(
        "--shares",
        type=float,
        nargs="+",
        default=None,
        metavar="SHARE",
        help="rates of the open loop, as shares of the highest throughput of the closed loop",
    )
    add("--repetitions", type=int, default=None, metavar="N", help="of each measurement (3)")
    add("--timeout", type=in_seconds, default=10.0, help="seconds after which a request fails (10)")
    add(
        "--p99-limit",
        type=in_seconds,
        default=None,
        metavar="TIME",
        help="such as 50ms: choose a batch_size for which 99 %% of the answers take no longer",
    )
    add("--prefix", default="", help="name of the queue at the broker")
    add("--secret-file", default=None, metavar="FILE", help="contains the secret of the queue")
    add("--body", default=None, metavar="FILE", help="contains the body of each HTTP request")
    add("--content-type", default="application/json", help="of the body (application/json)")
    add("--workers", type=int, default=None, metavar="N", help="worker processes (as in --options)")
    add_devices(add)
    add_placement(add)
    add("--mp-start-method", help="spawn, fork or forkserver (spawn)")
    add_model_options(add)


def run(
    target: str,
    *,
    items: Any,
    sample: str | None,
    items_per_request: int,
    path: str,
    quick: bool,
    seconds: float | None,
    clients: list[int] | None,
    shares: list[float] | None,
    repetitions: int | None,
    timeout: float,
    p99_limit: float | None,
    prefix: str,
    secret_file: str | None,
    body: str | None,
    content_type: str,
    workers: int | None,
    **options: Any,
) -> int:
    """Measure, print tables, and write the report."""
    if sample is not None:
        items = read_sample(sample)
    if items is not None and not (isinstance(items, list) and items):
        raise CommandError(f"--items must be a JSON list with at least one item, not {items!r}")
    usual = _QUICK if quick else Plan(_CLIENTS, _SHARES, 3, 50.0)
    plan = Plan(
        tuple(sorted(clients)) if clients else usual.clients,
        tuple(sorted(shares)) if shares else usual.shares,
        usual.repetitions if repetitions is None else repetitions,
        usual.seconds if seconds is None else seconds,
        p99_limit,
    )
    _check(plan, items_per_request, timeout, path)
    model = {k: v for k, v in options.items() if k.startswith("model_init") or k == "warmup"}
    settings = Settings(
        items,
        items_per_request,
        timeout,
        body=None if body is None else _read(body),
        content_type=content_type,
        prefix=prefix,
        secret=read_secret(secret_file),
        workers=workers,
        model=model,
        streamer=fill_in({k: v for k, v in options.items() if k not in model}, batch_size=64),
    )
    logging.getLogger("service_streamer").addHandler(logging.NullHandler())  # errors are counted
    opened = open_target(target, settings)
    try:
        with table.progress_bar(plan.steps) as progress:
            results = measure(opened, plan, progress)
    except KeyboardInterrupt:
        return 130
    finally:
        opened.close()
    _print(results)
    with open(path, "w", encoding="utf-8") as file:
        file.write(report.page(results, plan))
    print(f"report: {path}")
    return 0


def _check(plan: Plan, items_per_request: int, timeout: float, path: str) -> None:
    """Refuse settings that cannot be measured, before anything is started."""
    checks = [
        (min(plan.clients) >= 1, "--clients must be at least 1"),
        (min(plan.shares) > 0, "--shares must be more than 0"),
        (plan.repetitions >= 1, "--repetitions must be at least 1"),
        (plan.seconds > 0, "--seconds must be more than 0"),
        (items_per_request >= 1, "--items-per-request must be at least 1"),
        (timeout > 0, "--timeout must be more than 0"),
        (plan.p99_limit is None or plan.p99_limit > 0, "--p99-limit must be more than 0"),
    ]
    for holds, text in checks:
        if not holds:
            raise CommandError(text)
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.access(folder, os.W_OK):
        raise CommandError(f"--report: {path} cannot be written")


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise CommandError(f"--body: {path}: {error.strerror}") from None


def _print(results: Results) -> None:
    print(results.target)
    print()
    for title, load, points in (
        ("Closed loop", "clients", results.closed),
        ("Open loop (latency from when a request was due)", "due/s", results.open),
    ):
        if points:
            rows = [[f"{point.load:,.0f}", *table.cells(point)] for point in points]
            table.print_table(title, [load, *table.HEADINGS], rows)
    sentences = filter(None, [knee_sentence(results.closed), limit_sentence(results)])
    for line in (*sentences, *advise(results), *results.notes, *results.errors()):
        print(line)
