"""Takes the picture of the live page of a hub in docs/images: a few models, in Chromium.

python tests/tools/hub_page.py [FILE] [--dark] [--size 1280x700]
"""

from __future__ import annotations

import contextlib
import random
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from live_page import parser_of, picture_of

from service_streamer import web
from service_streamer.hub import ModelHub, ModelLoadError

POLICIES = {
    "embeddings": 'policy = "latest"',
    "sentiment": 'policy = "pinned:7"\npin = true',
    "summary": 'policy = "latest"',
    "topics": 'policy = "latest:2"',
}
VERSIONS = {"embeddings": [3], "sentiment": [7, 8], "summary": [1], "topics": [4, 5]}
CALLERS = ["sentiment"] * 12 + ["topics"] * 4 + ["topics@4"]


def make(path: str) -> Any:
    """Load a version."""
    if "summary" in path:
        raise FileNotFoundError("weights.pt is missing")
    size = random.randint(20, 120) * 1_000_000
    weights = b"w" * size

    def predict(batch: list[Any]) -> list[Any]:
        time.sleep(0.004)
        return [weights[:1] for _ in batch]

    return predict


def fill(root: Path) -> None:
    """Write the folder of the models."""
    for name, policy in POLICIES.items():
        for version in VERSIONS[name]:
            (root / name / str(version)).mkdir(parents=True)
        text = f'model = "hub_page:make"\n{policy}\n[options]\nbatch_size = 32\n'
        (root / name / "model.toml").write_text(text)


def call(hub: ModelHub, name: str, stop: threading.Event) -> None:
    """Be one caller, until the end."""
    while not stop.is_set():
        hub.predict(name, [1])
        stop.wait(random.expovariate(20))


def main() -> None:
    """Run the hub, the load and the browser."""
    options = parser_of("hub-page.png", "1280x700", __doc__).parse_args()
    stop = threading.Event()
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder))
        with ModelHub.watch(folder, max_loaded=8, memory_budget="2GB") as hub:
            hub.load("sentiment")
            hub.canary("sentiment", version=8, share=0.1)
            callers = [threading.Thread(target=call, args=(hub, each, stop)) for each in CALLERS]
            for caller in callers:
                caller.start()
            try:
                app = web.create_app({"models": hub}, control=lambda request: True)
                with picture_of(app, options) as browser:
                    with contextlib.suppress(ModelLoadError):
                        hub.load("summary")
                    browser.wait_for(".changes li", "summary@1 cannot be loaded")
                    stop.wait(5)
            finally:
                stop.set()
                for caller in callers:
                    caller.join()


if __name__ == "__main__":
    main()
