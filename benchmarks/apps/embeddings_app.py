"""examples/sentence_embeddings as a Flask application that embeds one sentence per request.

BENCH_MODEL: eager with a streamer, alone (eager without one), or native: a package on C++ threads.
"""

import os
import sys
from pathlib import Path

from cases.native_models import MODELS, torch  # first: it finds torch
from compare import adapters
from flask import Flask, request

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "sentence_embeddings"
sys.path.insert(0, str(EXAMPLE))
from encoder import PAD, Tokenizer, load_encoder, pad  # noqa: E402

app = Flask(__name__)
mode, peer = os.environ["BENCH_MODEL"], os.environ["BENCH_PEER"]
tokenize = Tokenizer()


def native_model() -> object:
    import service_streamer.torch

    path = MODELS / "sentences.pt2"
    if not path.exists():
        MODELS.mkdir(parents=True, exist_ok=True)
        example = pad([tokenize("A sentence."), tokenize("One more.")])
        service_streamer.torch.compile(load_encoder(), example, path, max_batch=64, sequence=256)
    return service_streamer.torch.NativeModel(path, collate="pad", pad_value=PAD)


if mode == "native":
    predict = adapters.streamer(peer, native_model()).predict
else:
    encoder = load_encoder()

    @torch.no_grad()
    def embed(batch: list[torch.Tensor]) -> torch.Tensor:
        return encoder(pad(batch))

    predict = embed if mode == "alone" else adapters.streamer(peer, embed).predict


@app.get("/")
def index() -> str:
    sentence = request.args.get("s", "A musician performs outside with his instrument.")
    return str(predict([tokenize(sentence)])[0].tolist()[0])
