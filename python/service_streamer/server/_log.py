"""What the server logs."""

from __future__ import annotations

import logging

from .._base.messages import describe

_logger = logging.getLogger("service_streamer")


def failed(what: str, error: BaseException) -> None:
    """Log that a request has failed for a reason that is not the client's."""
    about = {"error": describe(error)}
    _logger.error("%s has failed: %s", what, about["error"], exc_info=error, extra=about)
