"""One web process with greenlets, and a model worker on each GPU.

CUDA_DEVICES=0,1,2,3 python multi_gpu_flask_app.py

The model of this example uses the CPU. Your model sees the GPU of its worker.
"""

from gevent import monkey

monkey.patch_all()

import os  # noqa: E402

from flask import Flask, Response, jsonify, request  # noqa: E402
from gevent.pywsgi import WSGIServer  # noqa: E402
from model import ManagedBertModel  # noqa: E402

from service_streamer import Streamer  # noqa: E402

app = Flask(__name__)
streamer: Streamer


@app.post("/stream")
def stream_predict() -> Response:
    return jsonify(streamer.predict(request.form.getlist("s")))


@app.get("/explain")
def explain() -> Response:
    return Response(streamer.explain(), mimetype="text/plain")


if __name__ == "__main__":  # workers import this file too, and must not start the server
    devices = os.environ.get("CUDA_DEVICES", "0,1").split(",")
    streamer = Streamer(
        ManagedBertModel,
        batch_size=64,
        max_latency=0.1,
        worker_num=len(devices),
        cuda_devices=devices,
        wait_for_worker_ready=True,
    )
    port = int(os.environ.get("PORT", "5005"))
    WSGIServer(("127.0.0.1", port), app, log=None).serve_forever()
