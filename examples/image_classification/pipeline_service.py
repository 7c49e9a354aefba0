"""The service as a pipeline: decoding, the network and the answers work at the same time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from service import Answer, BadRequest, ImageService, answer
from torch import Tensor

from service_streamer import Pipeline, Stage


class PipelineService(ImageService):
    """Classifies pictures like `ImageService`, but threads of the pipeline decode the files.

    Pillow releases the GIL while it decodes, so as many files are decoded at a time as there are
    cores. Callers only wait. This suits asyncio, and callers with many files.
    """

    def _make_streamer(self) -> Any:
        return Pipeline(
            # In batches, so that the network gets several pictures at once.
            Stage(self._decode, batch_size=8, workers=os.cpu_count() or 1, name="decode"),
            Stage(self._predict, batch_size=64, max_latency=0.05, name="network"),
            Stage(answers, batch_size=64),
        )

    def classify(self, files: Sequence[bytes]) -> list[Answer]:
        return self.streamer.predict(self._checked(files))

    async def classify_async(self, files: Sequence[bytes]) -> list[Answer]:
        return await self.streamer.apredict(self._checked(files))

    def _checked(self, files: Sequence[bytes]) -> Sequence[bytes]:
        if not files:
            raise BadRequest("the form has no file 'image'")
        return files

    def _decode(self, files: Sequence[bytes]) -> list[NDArray[np.uint8]]:
        return self.read(files)


def answers(batch: Sequence[Tensor]) -> list[Answer]:
    """Return the class with the highest score for each row of scores."""
    return [answer(scores) for scores in batch]
