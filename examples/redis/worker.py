"""Runs the workers of one model on this machine, one for each GPU.

CUDA_DEVICES=0,1,2,3 python worker.py

`python -m service_streamer redis-worker` does the same without a script.
"""

import os

from models import ManagedBertModel
from settings import BROKER, SECRET

from service_streamer import run_redis_workers_forever

if __name__ == "__main__":  # the worker processes import this file too
    devices = os.environ.get("CUDA_DEVICES")
    cuda_devices = devices.split(",") if devices else None
    run_redis_workers_forever(
        ManagedBertModel,
        batch_size=64,
        max_latency=0.1,
        worker_num=len(cuda_devices or [None]),
        cuda_devices=cuda_devices,
        redis_broker=BROKER,
        prefix="text-infilling",
        secret=SECRET,
    )
