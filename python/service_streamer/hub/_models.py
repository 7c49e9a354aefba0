"""What a hub knows of its models and their versions. `Loader` guards all of it with its lock."""

from __future__ import annotations

import collections
import enum
import time
import weakref
from typing import TYPE_CHECKING, Any

from .._models.parameters import has_parameters
from .._statistics.stats import StreamerStats
from .._statistics.time_summary import TimeSummary
from ..extend import BaseStreamer, view_of
from ._errors import ModelLoadError, NoParameters, NoRoomForModel
from ._memory import Size
from ._sharing.streamer import SharedStreamer
from ._spec import ModelSpec
from ._status import ModelStatus, VersionStatus

if TYPE_CHECKING:
    from pathlib import Path

    from .._pipeline.request import Piece
    from ._tracing import HubTracing
    from ._versions.model_file import ModelFile
    from ._versions.plan import CanaryPlan


class State(enum.Enum):
    """The state of a version of a model."""

    UNLOADED = "unloaded"
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


MOST_DEATHS = 2  # of shared workers, after which a model gets a process of its own

MOST_ATTEMPTS = 5  # without a request and without a change of its files

MOVING = (State.LOADING, State.DRAINING)
"""the states that end by themselves"""

FEW = 64  # requests that wait, so few that it is not looked at which of them have ended


class Version:
    """One version of a model. The handles read `streamer` and write `used` without the lock."""

    def __init__(self, model: Model, number: int, spec: ModelSpec) -> None:
        self._model = weakref.ref(model)  # which has this version
        self.number = number
        self.spec = self.next_spec = spec
        """the spec of the present or next load, and the one for later loads"""
        self.settings: dict[str, Any] = {}
        """the settings of `ModelHandle.configure`, for the streamers of later loads"""
        self.state = State.UNLOADED
        self.streamer: BaseStreamer | None = None
        """gets the requests; None unless it is loaded and not leaving"""
        self.used = 0.0
        """monotonic time of the last request or load; 0: never"""
        self.progress: str | None = None
        """a line about the environment that is being made"""
        self.leaving: BaseStreamer | None = None
        """the one that is drained"""
        self.retired_at = 0.0
        """monotonic time at which that has begun"""
        self.waiting: list[Piece] = []
        """requests for the streamer of the next load"""
        self._most_waiting = FEW
        self.wanted = False
        """load it after it was drained, also without a request"""
        self.holds_room = False
        """it counts: it is loaded, or has its room to be loaded into"""
        self.beside: Version | None = None
        """the version that it replaces. It is loaded beside that one"""
        self.dropped = False
        """it is out of service for ever"""
        self.size: Size | None = None
        """the measured size; None: it was never loaded"""
        self.error: ModelLoadError | None = None
        self.attempts = 0
        """failed ones, since the last that did not fail"""
        self.retry_at = 0.0
        """monotonic time of the next attempt after a failure"""
        self.stamp: int | None = None
        """changes with the files of its folder"""
        self.made_of: tuple[object, int | None] | None = None
        """model.toml and the stamp that `next_spec` was made of"""
        self.tried_stamp: int | None = None
        """the stamp at the last attempt to load it"""
        self.changing = False
        """its files have changed just now, as those of a copy do"""
        self.evicted_at: float | None = None
        self.warned_at: float | None = None
        self.reloads = 0
        """loads within a minute after it was evicted"""
        self.worker_deaths = 0
        """the deaths of shared worker processes while they ran it"""
        self.loads = 0
        self.failures = 0
        """loads that failed"""
        self.load_seconds: float | None = None
        """the duration of the last load; None: there was none"""
        self.earlier = collections.Counter[str]()
        """submitted and failed requests of streamers that were closed"""
        self.last_stats: StreamerStats | None = None
        """the statistics of the last streamer that was closed"""

    @property
    def model(self) -> Model:
        """The model, which the `Loader` keeps alive."""
        model = self._model()
        assert model is not None
        return model

    @property
    def model_name(self) -> str:
        """The name of the model."""
        return self.model.name

    @property
    def serves(self) -> bool:
        """True if it gets the requests without a version or label."""
        serving = self.model.serving
        return serving is not None and serving.version is self

    @property
    def is_degraded(self) -> bool:
        """True if it serves because a newer version cannot be loaded."""
        return self.serves and self.model.degraded() is not None

    @property
    def name(self) -> str:
        """The name of the model and the number of the version."""
        return f"{self.model.name}@{self.number}"

    @property
    def is_apart(self) -> bool:
        """True if it must not share a worker process any more."""
        return self.worker_deaths >= MOST_DEATHS

    @property
    def is_broken(self) -> bool:
        """True if its last load has failed, also while the next one is under way.

        A lack of room is no fault of the version.
        """
        return self.error is not None and not isinstance(self.error, NoRoomForModel)

    @property
    def is_due(self) -> bool:
        """True if its last load has failed, and the pause before the next one is over."""
        return self.state is State.FAILED and time.monotonic() >= self.retry_at

    @property
    def may_try_again(self) -> bool:
        """True if it is time for another attempt after a failure, also without a request."""
        if self.changing:
            return False
        if self.is_changed:
            return self.is_due or self.attempts == 1
        return self.is_due and self.attempts < MOST_ATTEMPTS

    @property
    def is_changed(self) -> bool:
        """True if its last load has failed, and its files are others now."""
        return self.state is State.FAILED and self.stamp != self.tried_stamp

    @property
    def next_attempt(self) -> float | None:
        """The monotonic time from which on it may be tried again; None: at a change of its files.

        It may be in the past.
        """
        tries = self.state is State.FAILED and not self.dropped and not self.changing
        tries = tries and (self.is_changed or self.attempts < MOST_ATTEMPTS)
        return self.retry_at if tries and self.retry_at < float("inf") else None

    def why(self) -> str | None:
        """Return why its last load has failed, and what comes next; None: it has not."""
        if self.error is None:
            return None
        then = "; its files are changing, and it is tried again when they stop"
        return f"{self.error}{then if self.changing else ''}"

    def check(self, items: Any) -> None:
        """Raise NoParameters if a request brings parameters, and the version takes none."""
        if has_parameters(items) and not self.spec.takes_parameters:
            raise NoParameters(f"model {self.name} takes no parameters")

    def let_wait(self, piece: Piece) -> None:
        """Add a request for the streamer of the next load."""
        if len(self.waiting) >= self._most_waiting:  # forget those that have ended
            self.waiting = [each for each in self.waiting if not each.request.ended]
            self._most_waiting = max(FEW, 2 * len(self.waiting))
        self.waiting.append(piece)

    def status(self) -> VersionStatus:
        """Return what `ModelHub.status` tells."""
        streamer = self.streamer or self.leaving
        counts = {} if streamer is None else view_of(streamer).counts
        recent = counts.get("last_10s")  # not of a shared worker
        latency = None if recent is None else TimeSummary.from_engine(recent["latency"])
        size = self.size if self.holds_room else None
        since = time.monotonic() - self.used
        return VersionStatus(
            version=self.number,
            state=self.state.value,
            memory=None if size is None else size.host,
            gpu_memory=None if size is None else size.gpu,
            last_use=time.time() - since if self.used else None,
            requests=self.earlier["submitted"] + counts.get("submitted", 0),
            waiting=sum(not each.request.ended for each in self.waiting),
            reloads=self.reloads,
            error=self.why(),
            shared=isinstance(streamer, SharedStreamer),
            worker_deaths=self.worker_deaths,
            loads=self.loads,
            failures=self.failures,
            load_seconds=self.load_seconds,
            failed=self.earlier["failed"] + counts.get("failed", 0),
            latency=latency if latency is not None and latency.count else None,
            progress=self.progress,
        )


class Alias:
    """The version for which a name stands. It changes when another version takes over."""

    __slots__ = ("canary", "name", "version")

    def __init__(self, name: str, version: Version) -> None:
        self.name = name
        self.version = version
        self.canary: Any = None
        """the `Canary` that gets a share of the requests; None: there is none"""


class Model:
    """A model and its versions."""

    def __init__(self, name: str, pinned: bool) -> None:
        self.name = name
        self.pinned = pinned
        self.versions: dict[int, Version] = {}
        self.serving: Alias | None = None
        """the version that gets the requests without a version or label"""
        self.labels: dict[str, Alias] = {}
        self.error = ""
        """the reason why its folder, or a part of it, cannot be used"""
        self.tracing: HubTracing | None = None
        """makes the spans of its requests; None: the hub may do"""
        # The rest is for models in a folder; `Rollout` uses it.
        self.file: ModelFile | None = None
        self.folders: dict[int, Path] = {}
        """the folders of the complete versions"""
        self.stamps: dict[int, int] = {}
        """the stamps of their files"""
        self.changing: set[int] = set()
        """the versions whose files have changed just now"""
        self.order: list[int] = []
        """the versions that may serve, the best one first"""
        self.wanted: set[int] = set()
        """the versions that the policy or a label asks for"""
        self.candidate: Version | None = None
        """the version that will serve when it is loaded"""
        self.history: list[int] = []
        """the versions that served before, in order"""
        self.canary: Any = None
        """the present or the last `Canary`; None: there was none"""
        self.trying: CanaryPlan | None = None
        """the version that will be the canary when it is loaded"""
        self.declared: CanaryPlan | None = None
        """the canary that its model.toml asks for, once it was begun"""
        self.promoted: int | None = None
        """the version that serves against the policy, until the file changes"""
        self.rejected: set[int] = set()
        """the versions that `ModelHub.rollback` has taken out of service"""

    def get(self, number: int) -> Version | None:
        """Return a version, unless it is going out of service."""
        version = self.versions.get(number)
        return None if version is None or version.dropped else version

    def held(self) -> set[int]:
        """Return the numbers under which a new folder would not be read."""
        unread = (State.UNLOADED, State.FAILED)
        known = [each for each in self.versions.copy().values() if not each.dropped]
        return self.rejected | {each.number for each in known if each.state not in unread}

    def earlier(self) -> list[int]:
        """Return the versions to go back to, the best one first.

        Those that served before, the last one first, and then the older ones in the folder.
        """
        known = self.folders.keys() - self.rejected
        found = dict.fromkeys(number for number in reversed(self.history) if number in known)
        serving = -1 if self.serving is None else self.serving.version.number
        for number in sorted(known, reverse=True):
            version = self.versions.get(number)
            if number < serving and (version is None or not version.is_broken):
                found[number] = None
        return list(found)

    def degraded(self) -> str | None:
        """Return why a better version does not serve in place of this one; None: there is none."""
        serving = None if self.serving is None else self.serving.version
        for number in self.order:
            version = self.versions.get(number)
            if version is serving or version is None:
                break
            if version.error is not None:
                return version.why()
        return None

    def forget(self, version: Version) -> None:
        """Remove a version. A new one may have its number already."""
        if self.versions.get(version.number) is version:
            del self.versions[version.number]

    def add(self, number: int, spec: ModelSpec) -> Version:
        """Add a version. The first one is the one that serves."""
        version = self.versions[number] = Version(self, number, spec)
        if self.serving is None:
            self.serving = Alias(self.name, version)
        return version

    def status(self) -> ModelStatus:
        """Return what `ModelHub.status` tells."""
        return ModelStatus(
            name=self.name,
            serving=None if self.serving is None else self.serving.version.number,
            pinned=self.pinned,
            labels={label: alias.version.number for label, alias in self.labels.copy().items()},
            versions={
                number: each.status() for number, each in sorted(self.versions.copy().items())
            },
            error=self.error or None,
            canary=None if self.canary is None else self.canary.status(),
            earlier=next(iter(self.earlier()), None),
            degraded=self.degraded(),
            available=tuple(sorted(self.folders)),
        )
