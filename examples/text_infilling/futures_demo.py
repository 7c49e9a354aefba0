"""Without a web server: sentences per second one by one, in batches, and through a streamer.

python futures_demo.py
"""

import argparse
import time
from collections.abc import Iterator
from concurrent.futures import as_completed
from contextlib import contextmanager

from model import TextInfillingModel

from service_streamer import ThreadedStreamer

BATCH_SIZE = 64


@contextmanager
def sentences_per_second(name: str, count: int) -> Iterator[None]:
    begin = time.perf_counter()
    yield
    print(f"{name:<18}{count / (time.perf_counter() - begin):>8,.0f} sentences/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=50, help="batches of 64 sentences")
    batches = parser.parse_args().batches
    model = TextInfillingModel()
    texts = ["Happy birthday to [MASK]."] * (BATCH_SIZE * batches)

    with sentences_per_second("one by one", len(texts)):
        for text in texts:
            model.predict([text])

    with sentences_per_second("batched by hand", len(texts)):
        for _ in range(batches):
            model.predict(texts[:BATCH_SIZE])

    with ThreadedStreamer(model.predict, batch_size=BATCH_SIZE, max_latency=0.1) as streamer:
        with sentences_per_second("futures", len(texts)):
            futures = [streamer.submit([text]) for text in texts]  # returns at once
            answers = [future.result(timeout=20)[0] for future in futures]
        assert answers == ["you"] * len(texts)

        with sentences_per_second("map", len(texts)):
            answers = list(streamer.map(texts))  # lazy, in order; progress=True shows a bar
        assert answers == ["you"] * len(texts)

        rhyme = "Mary had a little [MASK]", "Jack and [MASK] went up the hill"
        for future in as_completed([streamer.submit([line]) for line in rhyme], timeout=20):
            print(*future.result())

        print(streamer.explain())


if __name__ == "__main__":
    main()
