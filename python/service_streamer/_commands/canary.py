"""The command ``canary``: begins, promotes or ends the canary of a model, through a page."""

from __future__ import annotations

import json
import time
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .logs import say
from .options import CommandError, in_seconds, new_parser
from .page import SCHEMES, Page

_PAUSE = 0.2  # s between two looks at the load
_PATIENCE = 5.0  # s in which no answer of the page has to know of the load

_EXAMPLE = """
The page is that of serve FOLDER --monitor, or of service_streamer.web in an application. It must
allow changes: --control-token-file of serve, or control= in an application.

examples:
  service-streamer canary http://127.0.0.1:9000/ sentiment@4 --share 0.1 --token-file token
  service-streamer canary http://127.0.0.1:9000/ sentiment --promote --token-file token
  service-streamer canary http://127.0.0.1:9000/ sentiment --end --token-file token
"""


def add_to(commands: Any) -> None:
    """Add the parser of the command."""
    parser = new_parser(
        commands,
        "canary",
        run,
        help="give a version of a model a share of the requests",
        description="Begins the canary of a model of a hub, lets it serve, or ends it.",
        epilog=_EXAMPLE,
    )
    add = parser.add_argument
    add("place", metavar="URL", help="of the page")
    add("model", metavar="MODEL[@VERSION]", help="the version that is tried; else the model")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--share", type=float, help="of the requests that it gets, from 0 to 1")
    what.add_argument("--promote", action="store_true", help="let it serve")
    what.add_argument("--end", action="store_true", help="give it no more requests")
    add("--margin", type=float, help="most that its error rate may be higher (0.05)")
    add("--min-requests", type=int, help="that it answers before its error rate counts (100)")
    add("--timeout", type=in_seconds, default=600.0, help="longest wait until it is loaded (600)")
    add("--hub", default=None, metavar="NAME", help="of the hub on the page (the only one)")
    add("--token-file", default=None, metavar="FILE", help="its first line is the token")


def run(
    place: str,
    model: str,
    *,
    timeout: float,
    hub: str | None,
    token_file: str | None,
    **what: Any,
) -> int:
    """Change the canary, and wait until a new one gets requests."""
    page = _HubPage(place, hub, _token(token_file))
    name, _, version = model.partition("@")
    if "share" not in what:
        if version or len(what) > 1:
            raise CommandError("--promote and --end take the name of the model, and no more")
        page.change({"promote" if "promote" in what else "end": name})
        say(f"done: {name}@{page.now()[1][name]['serving']} serves")
        return 0
    if not version.isdecimal():
        raise CommandError(f"the model must have a version, such as {name}@4, not {model!r}")
    if not timeout > 0:
        raise CommandError(f"--timeout must be positive, not {timeout:g}")
    number = int(version)
    model = f"{name}@{number}"  # as the events have it
    seen = page.now()[0]
    page.change({"canary": {"model": name, "version": number, **what}})
    say(f"{model} is being loaded")
    begun = known_at = time.monotonic()
    while (now := time.monotonic()) - begun < timeout:
        events, models = page.now()
        texts = [text for each, text in events.items() if each not in seen]
        loading = models.get(name, {}).get("versions", {}).get(str(number), {})
        if found := [text for text in texts if text.startswith(f"canary {model} ")]:
            say(found[0])
            return 0 if " gets " in found[0] else 1
        if loading.get("state") == "loading" or f"load {model} as a canary" in texts:
            known_at = now
        elif now - known_at > _PATIENCE:
            raise CommandError(
                f"{place} does not know the load of {model}: its server was started again, or "
                "another process answers"
            )
        time.sleep(_PAUSE)
    raise CommandError(f"{model} was not loaded within {timeout:g} s. The load goes on")


def _token(file: str | None) -> str | None:
    if file is None:
        return None
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise CommandError(f"--token-file: {file} cannot be read: {error}") from None
    return lines[0].strip() if lines else ""


class _HubPage(Page):
    """The page, and which hub on it is meant. The methods raise CommandError."""

    def __init__(self, place: str, hub: str | None, token: str | None) -> None:
        if not place.startswith(SCHEMES):
            raise CommandError(
                f"the page must be a URL such as http://127.0.0.1:9000/, not {place!r}"
            )
        super().__init__(place)
        self._token = token
        hubs = [*self.stats()[1]]
        wanted = hubs if hub is None else [hub]
        if len(wanted) != 1 or wanted[0] not in hubs:
            which = f"not {hub!r}" if hub is not None else "give the name of one"
            raise CommandError(f"--hub: {place} shows the hubs {hubs}, {which}")
        self._hub = wanted[0]

    def change(self, wanted: Mapping[str, Any]) -> None:
        """Send a change."""
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        path = f"/control/{urllib.parse.quote(self._hub, safe='')}"
        self.ask(path, json.dumps(wanted).encode(), **headers)

    def now(self) -> tuple[dict[str, str], dict[str, Any]]:
        """Return the texts of the last changes, by their ids; and the models by name."""
        document, hubs = self.stats()
        events = [each for each in document["events"] if each["streamer"] == self._hub]
        models = hubs.get(self._hub, {}).get("models", {})
        return {each["id"]: each["text"] for each in events}, models
