"""A hub with one model, for `python -m service_streamer serve apps.hub_app:hub`."""

import os

from cases import common
from compare import adapters

from service_streamer.hub import ModelHub, ModelSpec

model = ModelSpec(common.MODELS[os.environ["BENCH_MODEL"]], batch_size=adapters.BATCH_SIZE)
hub = ModelHub({"model": model})
