"""Embeds sentences with the model and a streamer. Used by the web applications.

python service.py                                    # prints which sentences are close
python service.py --model encoder.pt2 --web flask    # serves; encoder.pt2 comes from export.py
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence

import torch
from encoder import PAD, Tokenizer, load_encoder
from torch import Tensor

from service_streamer import ThreadedStreamer
from service_streamer.torch import BatchedModel, NativeModel

SENTENCES = [
    "A man is playing the guitar on the street.",
    "A musician performs outside with his instrument.",
    "How do I reset my password?",
    "I forgot my login and cannot get into my account.",
    "The recipe needs two eggs and a cup of flour.",
    "Beat the eggs, then add flour to the dough.",
]


BUCKETS = (16, 32, 64, 128)  # tokens: sentences of similar length run together


class BadRequest(ValueError):
    """The service cannot answer the request. The message has the reason."""


class EmbeddingService:
    """Embeds sentences for any number of callers.

    Args:
        model: "eager", or a file made by export.py: TorchScript (.pt) or AOTInductor (.pt2).
        native: run the file in C++ threads without the GIL.
        bucket: bounds of the number of tokens. None: a batch has sentences of any length.
    """

    def __init__(
        self,
        model: str = "eager",
        *,
        native: bool = False,
        bucket: Sequence[int] | None = BUCKETS,
    ) -> None:
        self._tokenize = Tokenizer()
        self._predict = native_model(model) if native else python_model(model)
        self.streamer = ThreadedStreamer(
            self._predict,
            batch_size=64,
            max_latency=0.1,
            weight=None if bucket is None else len,
            bucket=bucket,
        )

    @classmethod
    def from_environment(cls) -> EmbeddingService:
        """Make the service for the environment variables MODEL and NATIVE."""
        return cls(os.environ.get("MODEL", "eager"), native=os.environ.get("NATIVE") == "1")

    def embed_alone(self, sentences: Sequence[str]) -> list[list[float]]:
        """Embed these sentences without the streamer."""
        return [vector.tolist() for vector in self._predict(self.tokenize(sentences))]

    def embed(self, sentences: Sequence[str]) -> list[list[float]]:
        """Embed these sentences, in a batch with the sentences of other callers."""
        return [vector.tolist() for vector in self.streamer.predict(self.tokenize(sentences))]

    async def embed_async(self, sentences: Sequence[str]) -> list[list[float]]:
        """The same for asyncio."""
        outputs = await self.streamer.apredict(self.tokenize(sentences))
        return [vector.tolist() for vector in outputs]

    def tokenize(self, sentences: Sequence[str]) -> list[Tensor]:
        """Tokenize in the caller's thread, so that the model does not wait for it."""
        if not sentences:
            raise BadRequest("the form has no field 's'")
        return [self._tokenize(sentence) for sentence in sentences]


def load_model(model: str) -> Callable[[Tensor], Tensor]:
    """Load what takes a batch of token ids and returns a row for each sentence."""
    if model == "eager":
        return load_encoder()
    if model.endswith(".pt2"):
        return torch._inductor.aoti_load_package(model)
    return torch.jit.load(model)


def python_model(model: str) -> BatchedModel:
    """Run the model in Python. It gets the token ids padded, and gives a vector for each."""
    return BatchedModel(load_model(model), collate="pad", pad_value=PAD)


def native_model(model: str) -> NativeModel:
    """Run the file in C++ threads. They pad the token ids and return a vector for each."""
    return NativeModel(model, collate="pad", pad_value=PAD)


def main() -> None:
    parser = argparse.ArgumentParser(description="Sentences to vectors.")
    parser.add_argument("sentences", nargs="*", default=SENTENCES, help="to compare")
    parser.add_argument("--model", default="eager", help="eager, or a file of export.py")
    parser.add_argument("--native", action="store_true", help="without the interpreter")
    parser.add_argument("--web", choices=["flask", "fastapi"], help="serve, with this framework")
    parser.add_argument("--port", type=int, default=5005)
    options = parser.parse_args()
    service = EmbeddingService(options.model, native=options.native)
    if options.web == "flask":
        from flask_service import create_app

        create_app(service).run(port=options.port)
    elif options.web == "fastapi":
        import uvicorn
        from fastapi_service import create_app as create_async_app

        uvicorn.run(create_async_app(service), port=options.port, log_level="warning")
    else:
        show_nearest(options.sentences, torch.tensor(service.embed(options.sentences)))


def show_nearest(sentences: Sequence[str], vectors: Tensor) -> None:
    """Print the nearest other sentence for each sentence."""
    nearness = vectors @ vectors.T  # for unit vectors, the product is the cosine of the angle
    nearest = nearness.fill_diagonal_(-1).max(1)
    for sentence, value, place in zip(sentences, *nearest, strict=True):
        print(f"{sentence}\n  {value:.2f}  {sentences[int(place)]}")


if __name__ == "__main__":
    main()
