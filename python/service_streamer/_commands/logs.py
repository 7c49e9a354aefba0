"""The log of a service on stderr, as text or as JSON."""

from __future__ import annotations

import datetime
import json
import logging
import sys
from typing import Any

_logger = logging.getLogger("service_streamer")
_is_set_up = False

# What every record has; all else came with `extra`.
_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


def set_up(level: str, style: str) -> None:
    """Write the log to stderr.

    Args:
        level: "DEBUG", "INFO", "WARNING" or "ERROR".
        style: "text" or "json".
    """
    handler = logging.StreamHandler()
    if style == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
    logging.captureWarnings(True)
    global _is_set_up
    _is_set_up = True


def set_up_access_log() -> None:
    """Write the access log, too. As text, its lines have nothing before them: tools read these."""
    logger = logging.getLogger("service_streamer.access")
    logger.setLevel(logging.INFO)
    handlers = logging.getLogger().handlers  # also of opentelemetry-instrument
    if not any(isinstance(each.formatter, JsonFormatter) for each in handlers):
        logger.addHandler(logging.StreamHandler())
        logger.propagate = False


def say(text: str, error: bool = False) -> None:
    """Write one line for the operator: to the log if it is set up, else to stderr."""
    if _is_set_up:
        _logger.log(logging.ERROR if error else logging.INFO, text)
    else:
        print(f"service-streamer: {text}", file=sys.stderr, flush=True)


class JsonFormatter(logging.Formatter):
    """Formats a record as one line: a JSON object.

    Its keys are time (UTC), level, logger, message, exception if there is one, and all `extra`
    fields. A value that JSON does not know is written as its ``repr``.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        time = datetime.datetime.fromtimestamp(record.created, datetime.timezone.utc)
        values: dict[str, Any] = {
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            values["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            values["stack"] = record.stack_info
        known = _STANDARD | values.keys()
        extra = {
            key: _plain(value)
            for key, value in vars(record).items()
            if key not in known and not key.startswith("_")  # Ray marks every record so
        }
        return json.dumps({**values, **extra})


def _plain(value: Any) -> Any:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return repr(value)
    return value
