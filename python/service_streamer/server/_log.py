"""What the server logs."""

from __future__ import annotations

import logging

from .._base.messages import describe

_logger = logging.getLogger("service_streamer")


def failed(what: str, error: BaseException, request_id: str = "") -> None:
    """Log that a request has failed for a reason that is not the client's."""
    about = {"error": describe(error)}
    if request_id:
        what = f"{what} of request {request_id}"
        about["request_id"] = request_id
    _logger.error("%s has failed: %s", what, about["error"], exc_info=error, extra=about)
