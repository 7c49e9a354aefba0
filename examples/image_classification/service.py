"""Pictures to classes: the network behind a streamer, for the web applications and by itself.

python service.py shape.png                          # says what is in it
python service.py --model network.pt2 --web flask    # serves; network.pt2 comes from export.py
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from network import CLASSES, load_network, read_picture
from numpy.typing import NDArray
from torch import Tensor

from service_streamer import ThreadedStreamer

Answer = dict[str, str | float]


class BadRequest(ValueError):
    """A request that the service cannot answer; the message says why."""


class ImageService:
    """Classifies pictures for any number of callers.

    Args:
        model: "eager", or a file of export.py: AOTInductor (.pt2), TorchScript (.pt).
    """

    def __init__(self, model: str = "eager") -> None:
        self._predict = PythonModel() if model == "eager" else native_model(model)
        self.streamer = ThreadedStreamer(self._predict, batch_size=64, max_latency=0.05)

    @classmethod
    def from_environment(cls) -> ImageService:
        """What the variable MODEL asks for."""
        return cls(os.environ.get("MODEL", "eager"))

    def classify_alone(self, files: Sequence[bytes]) -> list[Answer]:
        """Run the network for these files only, as without a streamer."""
        return [answer(scores) for scores in self._predict(self.read(files))]

    def classify(self, files: Sequence[bytes]) -> list[Answer]:
        """What is in these files; they run in a batch with those of others."""
        return [answer(scores) for scores in self.streamer.predict(self.read(files))]

    async def classify_async(self, files: Sequence[bytes]) -> list[Answer]:
        """The same for an event loop."""
        pictures = await asyncio.to_thread(self.read, files)  # takes too long for the loop
        return [answer(scores) for scores in await self.streamer.apredict(pictures)]

    def read(self, files: Sequence[bytes]) -> list[NDArray[np.uint8]]:
        """Decode files; done by the caller, so that batches need not wait for it."""
        if not files:
            raise BadRequest("the form has no file 'image'")
        try:
            return [read_picture(file) for file in files]
        except ValueError as error:
            raise BadRequest(str(error)) from error


class PythonModel:
    """The network, run by the interpreter: pictures in, a row of scores for each out."""

    def __init__(self) -> None:
        self._network = load_network()

    @torch.no_grad()
    def __call__(self, batch: Sequence[NDArray[np.uint8]]) -> Tensor:
        return self._network(torch.from_numpy(np.stack(batch)))


def native_model(model: str) -> Callable[[Sequence[NDArray[np.uint8]]], Any]:
    """A file of export.py, on threads of C++ that never hold the interpreter."""
    from service_streamer.torch import NativeModel

    return NativeModel(model)


def answer(scores: Tensor) -> Answer:
    """The class with the highest score."""
    score, number = scores.max(0)
    return {"class": CLASSES[int(number)], "score": round(float(score), 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description="Pictures to classes.")
    parser.add_argument("pictures", nargs="*", type=Path, help="to classify")
    parser.add_argument("--model", default="eager", help="eager, or a file of export.py")
    parser.add_argument("--web", choices=["flask", "fastapi"], help="serve, with this framework")
    parser.add_argument("--port", type=int, default=5005)
    options = parser.parse_args()
    service = ImageService(options.model)
    if options.web == "flask":
        from flask_service import create_app

        create_app(service).run(port=options.port)
    elif options.web == "fastapi":
        import uvicorn
        from fastapi_service import create_app as create_async_app

        uvicorn.run(create_async_app(service), port=options.port, log_level="warning")
    else:
        files = [path.read_bytes() for path in options.pictures]
        for path, found in zip(options.pictures, service.classify(files), strict=True):
            print(f"{path}: {found['class']} ({found['score']})")


if __name__ == "__main__":
    main()
