"""Takes the picture of the live page in docs/images: a model under load for a while, in Chromium.

python tests/tools/live_page.py [FILE] [--workers 8] [--seconds 90] [--dark] [--size 1440x1000]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import random
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests/python/support"))

from browsers import Browser  # noqa: E402
from PIL import Image  # noqa: E402
from waits import eventually  # noqa: E402
from web_clients import Server  # noqa: E402

from service_streamer import RequestTimeout, Streamer, web  # noqa: E402

CALLERS = 20  # for each worker


def model(batch: list[Any]) -> list[Any]:
    """Take the time of a batch on a GPU."""
    time.sleep((0.02 + 0.001 * len(batch)) * random.uniform(0.8, 1.3))
    if any(item == "bad" for item in batch):
        raise ValueError("bad")
    return batch


def call(streamer: Streamer, stop: threading.Event, load: list[float]) -> None:
    """Be one caller, until the end."""
    while not stop.is_set():
        item = "bad" if random.random() < 0.0005 else "good"
        timeout = 0.03 if random.random() < 0.02 else 5
        with contextlib.suppress(ValueError, RequestTimeout):
            streamer.predict([item] * random.choice([1, 1, 1, 2, 4]), timeout=timeout)
        stop.wait(random.expovariate(load[0]))


def parser_of(name: str, size: str, about: str | None) -> argparse.ArgumentParser:
    """Return the parser of a program that takes a picture of docs/images."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("file", nargs="?", type=Path, default=ROOT / "docs/images" / name)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--size", default=size)
    return parser


@contextlib.contextmanager
def picture_of(app: Any, options: argparse.Namespace) -> Iterator[Browser]:
    """Show the page of an application in a browser. In the end, take its picture."""
    width, height = map(int, options.size.split("x"))
    server = Server(app)
    browser = Browser((width, height), "dark" if options.dark else "light")
    try:
        browser.open(server.url)
        eventually(lambda: browser.texts("#connection") == ["Live"])
        yield browser
        browser.picture(options.file)
        print(browser.errors())
    finally:
        browser.close()
        server.close()
    shrink(options.file)


def main() -> None:
    """Run the model, the load and the browser."""
    parser = parser_of("live-page.png", "1440x1000", __doc__)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=90)
    options = parser.parse_args()

    stop, load = threading.Event(), [4.0]
    count = options.workers
    with Streamer(model, 32, worker_num=count, mp_start_method="fork") as streamer:
        app = web.create_app({"sentiment": streamer}, control="token")
        for _ in range(CALLERS * count):
            threading.Thread(target=call, args=(streamer, stop, load), daemon=True).start()
        try:
            with picture_of(app, options):
                for rate, settings in ((12.0, {}), (12.0, {"batch_size": 16}), (25.0, {})):
                    stop.wait(options.seconds / 4)
                    load[0] = rate
                    if settings:
                        streamer.configure(**settings)
                stop.wait(options.seconds / 4)
        finally:
            stop.set()


def shrink(file: Path) -> None:
    """Reduce a picture to 128 colours."""
    small = io.BytesIO()
    with Image.open(file) as image:
        image.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(
            small, "PNG", optimize=True
        )
    file.write_bytes(small.getvalue())
    print(f"{file}: {len(small.getvalue()) // 1024} KiB")


if __name__ == "__main__":
    main()
