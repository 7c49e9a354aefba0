"""Classifies pictures with the network and a streamer. Used by the web applications.

python service.py shape.png                          # prints the class
python service.py --model network.pt2 --web flask    # serves; network.pt2 comes from export.py
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from network import CLASSES, load_network, read_picture
from numpy.typing import NDArray
from torch import Tensor

from service_streamer import ThreadedStreamer
from service_streamer.torch import BatchedModel, NativeModel

Answer = dict[str, str | float]


class BadRequest(ValueError):
    """The service cannot answer the request. The message has the reason."""


class ImageService:
    """Classifies pictures for any number of callers.

    Args:
        model: "eager", or a file made by export.py: AOTInductor (.pt2) or TorchScript (.pt).
    """

    def __init__(self, model: str = "eager") -> None:
        # A file runs in C++ threads without the GIL.
        self._predict = BatchedModel(load_network()) if model == "eager" else NativeModel(model)
        self.streamer = self._make_streamer()

    @classmethod
    def from_environment(cls) -> ImageService:
        """Make the service for the environment variable MODEL."""
        return cls(os.environ.get("MODEL", "eager"))

    def classify_alone(self, files: Sequence[bytes]) -> list[Answer]:
        """Classify these files without the streamer."""
        return [answer(scores) for scores in self._predict(self.read(files))]

    def classify(self, files: Sequence[bytes]) -> list[Answer]:
        """Classify these files, in a batch with the files of other callers."""
        return [answer(scores) for scores in self.streamer.predict(self.read(files))]

    async def classify_async(self, files: Sequence[bytes]) -> list[Answer]:
        """The same for asyncio."""
        pictures = await asyncio.to_thread(self.read, files)  # decoding would block the event loop
        return [answer(scores) for scores in await self.streamer.apredict(pictures)]

    def _make_streamer(self) -> Any:
        return ThreadedStreamer(self._predict, batch_size=64, max_latency=0.05)

    def read(self, files: Sequence[bytes]) -> list[NDArray[np.uint8]]:
        """Decode files in the caller's thread, so that the model does not wait for it."""
        if not files:
            raise BadRequest("the form has no file 'image'")
        try:
            return [read_picture(file) for file in files]
        except ValueError as error:
            raise BadRequest(str(error)) from error


def answer(scores: Tensor) -> Answer:
    """Return the class with the highest score."""
    score, number = scores.max(0)
    return {"class": CLASSES[int(number)], "score": round(float(score), 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description="Pictures to classes.")
    parser.add_argument("pictures", nargs="*", type=Path, help="to classify")
    parser.add_argument("--model", default="eager", help="eager, or a file of export.py")
    parser.add_argument("--pipeline", action="store_true", help="decode in a stage of its own")
    parser.add_argument("--web", choices=["flask", "fastapi"], help="serve, with this framework")
    parser.add_argument("--port", type=int, default=5005)
    options = parser.parse_args()
    kind = ImageService
    if options.pipeline:
        from pipeline_service import PipelineService as kind  # it imports this module
    service = kind(options.model)
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
