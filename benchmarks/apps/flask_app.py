"""A Flask application as one wrote it for service_streamer 0.1.2.

BENCH_MODEL=bare calls the model without a streamer.
"""

import os

from cases import common
from compare import adapters
from flask import Flask

app = Flask(__name__)
mode = os.environ["BENCH_MODEL"]
if mode == "bare":
    predict = common.model
else:
    predict = adapters.streamer(os.environ["BENCH_PEER"], common.MODELS[mode]).predict


@app.get("/")
def index() -> str:
    return str(predict([1])[0])
