"""A Flask application with the routes of service_streamer.web, for several web processes."""

import os

from cases import common
from compare import adapters
from flask import Flask

from service_streamer import web

app = Flask(__name__)
streamer = adapters.streamer("ours", common.noop)
app.register_blueprint(web.flask_blueprint(streamer), url_prefix="/streamer")


@app.get("/")
def index() -> str:
    return str(streamer.predict([os.getpid()])[0])
