"""What a hub logs."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from ._errors import ModelLoadError
from ._models import Version

_logger = logging.getLogger("service_streamer")

THRASHING = 60.0  # s; a model that is loaded again sooner after it was evicted


def loaded(version: Version) -> None:
    """Log that a version is loaded."""
    _logger.info("model %s is loaded", version.name, extra=_about(version))


def unloaded(version: Version) -> None:
    """Log that the requests of a version have ended, and that it is unloaded."""
    _logger.info("model %s is unloaded", version.name, extra=_about(version))


def failed(version: Version, failure: ModelLoadError) -> None:
    """Log that a version cannot be loaded."""
    about = {**_about(version), "error": str(failure)}
    _logger.warning("%s", failure, exc_info=failure.__cause__, extra=about)


def worker_died(version: Version) -> None:
    """Log that a shared worker process has died while it ran a version."""
    then = ", which gets a process of its own" if version.is_apart else ""
    text = "a shared worker process died while it ran model %s%s"
    about = {**_about(version), "worker_deaths": version.worker_deaths}
    _logger.warning(text, version.name, then, extra=about)


def progress(version: Version, text: str) -> None:
    """Log a line about the environment of a version that is being made."""
    _logger.info("model %s: %s", version.name, text, extra=_about(version))


def code_changed(version: Version) -> None:
    """Log that the code of a loaded version has changed, which has no effect."""
    text = "the code of model %s has changed after it was loaded, which has no effect: "
    text += "publish it as a new version"
    _logger.warning(text, version.name, extra=_about(version))


def files_replaced(version: Version) -> None:
    """Log that a loaded version has got another folder, which has no effect."""
    text = "the folder of model %s was replaced after it was loaded, which has no effect: "
    text += "publish it as a new version"
    _logger.warning(text, version.name, extra=_about(version))


def serves(version: Version) -> None:
    """Log that a version gets the requests from now on."""
    _logger.info("model %s serves now", version.name, extra=_about(version))


def replaced(version: Version, substitute: Version) -> None:
    """Log that an older version serves, because this one cannot be loaded."""
    text = "model %s cannot be loaded; %s serves in its place"
    about = {**_about(version), "serving": substitute.number}
    _logger.error(text, version.name, substitute.name, extra=about)


def not_observed(version: Version, error: Exception) -> None:
    """Log that the metrics of a version cannot be kept."""
    about = {**_about(version), "error": str(error)}
    _logger.warning("metrics of model %s: %s", version.name, error, extra=about)


def refused(name: str, why: str) -> None:
    """Log that the folder of a model, or a part of it, cannot be used."""
    _logger.warning("model %s: %s", name, why, extra={"streamer": name, "error": why})


def not_read(root: Path, error: Exception) -> None:
    """Log that the folder of the models cannot be read."""
    _logger.warning("%s cannot be read: %s", root, error, extra={"error": str(error)})


def not_watched(root: Path, error: Exception, seconds: float) -> None:
    """Log that the system does not report all changes of the folder of the models."""
    text = "%s cannot be watched: %s; it is looked at every %g s"
    _logger.warning(text, root, error, seconds, extra={"error": str(error)})


def thrashing(version: Version) -> None:
    """Count and log a load soon after the version made room for another one."""
    now = time.monotonic()
    if version.evicted_at is None or now - version.evicted_at >= THRASHING:
        return
    version.reloads += 1
    if version.warned_at is None or now - version.warned_at >= THRASHING:
        version.warned_at = now
        _logger.warning(
            "model %s is loaded again within a minute after it was unloaded for another one: "
            "raise max_loaded or the memory budget",
            version.name,
            extra=_about(version),
        )


def _about(version: Version) -> dict[str, object]:
    return {"streamer": version.name}
