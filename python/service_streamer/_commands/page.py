"""A page of `service_streamer.web`, as commands ask it."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from typing import Any

from .options import CommandError

SCHEMES = ("http://", "https://")
_TIMEOUT = 5.0  # s for an answer


class Page:
    """A page. The methods raise CommandError: it cannot be read, refuses, or is no such page."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def stats(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what ``/stats`` has; and of its streamers those that are hubs, by name."""
        document = self.ask("/stats")
        try:
            hubs = {
                name: each
                for name, each in document["streamers"].items()
                if each["models"] is not None
            }
        except (LookupError, TypeError, AttributeError):
            raise self._no_page("/stats") from None
        return document, hubs

    def ask(self, path: str, body: bytes | None = None, **headers: str) -> Any:
        """Return the JSON with which a route answers. With a body it is a POST."""
        url = self._url + path
        try:
            request = urllib.request.Request(url, body, headers)
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            try:
                why = json.load(error)["error"]
            except (ValueError, LookupError, TypeError):
                why = f"{error.code} {error.reason}"
            raise CommandError(f"{url}: {why}") from None
        except OSError as error:
            why = getattr(error, "reason", error)
            raise CommandError(f"{url} cannot be read: {why}") from None
        except (ValueError, http.client.HTTPException):
            raise self._no_page(path) from None

    def _no_page(self, path: str) -> CommandError:
        return CommandError(f"{self._url}{path} is no page of service_streamer.web")
