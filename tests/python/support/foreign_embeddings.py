"""The application that the client of OpenAI asks."""

import numpy as np
from embedding_models import Encodes, Predicts, vector_of
from starlette.applications import Starlette
from starlette.routing import Mount

from service_streamer import QueueFull
from service_streamer.embeddings import Embedder, create_app


def encode(texts):
    if "full" in texts:
        raise QueueFull("the queue is full", retry_after=0.5)
    if "broken" in texts:
        raise KeyError("broken")
    return np.array([vector_of(each) for each in texts], "f4")


def make():
    """Return the application: the routes below /openai."""
    routes = create_app(Embedder(Encodes(encode)), reranker=Embedder(Predicts()), name="letters")
    return Starlette(routes=[Mount("/openai", routes)])
