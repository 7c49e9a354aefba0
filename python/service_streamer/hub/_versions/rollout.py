"""Brings new versions of models into service, and takes old ones out of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..._messages import describe
from ..._waiting.threads import original
from .. import _log
from .._errors import UnknownModel
from .._loading.loader import Loader
from .._models import Alias, Model, State, Version
from .canary import Canary
from .folder import Found
from .model_file import ModelFile


class Rollout:
    """The versions of the models of a folder. Any thread may call the methods; none blocks.

    A new version is loaded beside the one that serves. When it is ready, the name stands for the
    new one. Then the old one is drained and dropped, unless the policy or a label keeps it.
    """

    def __init__(self, models: dict[str, Model], loader: Loader) -> None:
        self._models = models
        self._loader = loader
        loader.on_ready = self.switch
        # Held while it is decided which versions should be there; before that of the loader.
        # Reentrant: the end of a request may end a canary.
        self._deciding = original("_thread", "RLock")()

    def apply(self, found: dict[str, Found]) -> None:
        """Do what has changed in the folder. One thread at a time calls it."""
        for name in self._models.keys() - found.keys():
            model = self._models.pop(name)
            self._drop(list(model.versions.values()))
        for name, each in found.items():
            model = self._models.get(name) or Model(name, pinned=False)
            try:
                self._apply(model, each)
            except Exception as error:  # an option is invalid
                each.errors.append(describe(error))
            shown = "; ".join(each.errors)
            if shown and shown != model.error:
                _log.refused(name, shown)
            model.error = shown
            self._models[name] = model

    def reject(self, model: Model) -> Version:
        """Go back to the version that served before. Return it.

        Raises:
            UnknownModel: there is none.
            ValueError: the policy pins a version.
        """
        file, serving = model.file, model.serving
        numbers = model.earlier()
        if file is None or serving is None or not numbers:
            raise UnknownModel(f"model {model.name!r} has no earlier version to go back to")
        if model.promoted == serving.version.number:
            model.promoted = None
        elif file.policy.startswith("pinned"):
            raise ValueError(f"the policy of model {model.name!r} is {file.policy!r}: change it")
        # Versions between the two are not in question either: the earlier one has proved itself.
        newer = {number for number in model.folders if number > numbers[0]}
        with self._loader.lock:
            model.rejected |= newer | {serving.version.number}
            model.history.remove(numbers[0])
        self._aspire(model, file)
        return model.candidate or serving.version

    def add(self, model: Model, number: int) -> Version:
        """Return a version from the folder that may become a canary. Add it if it is not there.

        Raises:
            UnknownModel: the folder does not have it.
            ValueError: it serves already.
        """
        file, serving = model.file, model.serving
        if file is None or serving is None or number not in model.folders:
            versions = ", ".join(map(str, sorted(model.folders))) or "none"
            raise UnknownModel(
                f"the folder of model {model.name!r} has no version {number}; it has {versions}"
            )
        if serving.version.number == number:
            raise ValueError(f"version {number} of model {model.name!r} serves already")
        spec = file.spec(model.folders[number])
        with self._loader.lock:
            model.trying = number
            model.wanted.add(number)
            return model.get(number) or model.add(number, spec)

    def begin(self, canary: Canary) -> None:
        """Let a canary get requests, in place of an earlier one."""
        model = canary.version.model
        before: Canary | None = model.canary
        with self._loader.lock:
            assert model.serving is not None
            model.canary = model.serving.canary = canary
        if before is not None and before.version is not canary.version:
            self._retract(before, "another version is the canary")

    def end(self, canary: Canary, why: str) -> None:
        """Take a canary out of service, because it is worse."""
        _log.refused(canary.version.name, f"the canary has ended: {why}")
        self._retract(canary, why)

    def retract(self, model: Model) -> bool:
        """Take the canary of a model out of service. Return False if there is none."""
        serving = model.serving
        if serving is None or serving.canary is None:
            return False
        self._retract(serving.canary, "it was taken out of service")
        return True

    def promote(self, model: Model) -> Version:
        """Let the canary of a model serve. Return its version.

        Raises:
            ValueError: the model has no canary.
        """
        file, serving = model.file, model.serving
        canary: Canary | None = None if serving is None else serving.canary
        if file is None or canary is None:
            raise ValueError(f"model {model.name!r} has no canary")
        model.promoted = canary.version.number
        model.rejected.discard(canary.version.number)
        self._aspire(model, file)  # it takes over when it is ready, mostly at once
        return canary.version

    def _retract(self, canary: Canary, why: str) -> None:
        model = canary.version.model
        with self._loader.lock:
            canary.ended = canary.ended or why
            serving = model.serving
            assert serving is not None
            if serving.canary is canary:
                serving.canary = None
            canary.alias.version = serving.version  # for the requests that it has not accepted
        if model.file is not None:
            self._aspire(model, model.file)

    def _apply(self, model: Model, found: Found) -> None:
        if found.file is None:
            return
        if model.file != found.file:
            model.pinned = found.file.pin
            model.file = found.file
            model.promoted = None
        model.folders = found.versions
        model.rejected &= found.versions.keys()
        missing = set(found.file.labels.values()) - found.versions.keys()
        found.errors += [f"a label names version {number}, which is missing" for number in missing]
        canary: Canary | None = None if model.serving is None else model.serving.canary
        if canary is not None and canary.version.number not in found.versions:
            self._retract(canary, "its folder is gone")
        if not found.versions:
            found.errors.append("it has no version")
        self._aspire(model, found.file)

    def _aspire(self, model: Model, file: ModelFile) -> None:
        """Add the versions that should be there, and begin to load the one that should serve."""
        with self._deciding:
            self._decide(model, file)

    def _decide(self, model: Model, file: ModelFile) -> None:
        folders: dict[int, Path] = model.folders
        aspired = file.aspired(folders.keys() - model.rejected)
        if model.promoted in folders and model.promoted not in model.rejected:
            aspired = [model.promoted, *(each for each in aspired if each != model.promoted)]
        labelled = {label: each for label, each in file.labels.items() if each in folders}
        canary: Canary | None = None if model.serving is None else model.serving.canary
        tried = (model.trying, canary.version.number if canary is not None else None)
        known = [number for number in tried if number is not None and number in folders]
        wanted = dict.fromkeys([*aspired, *labelled.values(), *known])
        specs = {number: file.spec(folders[number]) for number in wanted}
        begun = []
        with self._loader.lock:
            for number, spec in specs.items():
                version = model.get(number)
                if version is not None:
                    version.next_spec = spec
                    if version.state in (State.UNLOADED, State.FAILED):
                        version.spec = spec
                    continue
                version = model.add(number, spec)
                if spec.load == "start":
                    begun.append(version)
            model.wanted = set(wanted)
            for label in model.labels.keys() - labelled.keys():
                del model.labels[label]
            for label, number in labelled.items():
                version = model.versions[number]
                alias = model.labels.setdefault(label, Alias(f"{model.name}@{label}", version))
                alias.version = version
            before = model.candidate
            model.candidate = None
            serving = model.serving
            if aspired and serving is not None and serving.version.number != aspired[0]:
                candidate = model.candidate = model.versions[aspired[0]]
                candidate.beside = serving.version
                if candidate is not before:
                    begun.append(candidate)
        for version in begun:
            self._loader.load(version)
            if version.state is State.READY:
                self.switch(version)
        self._drop_unwanted(model)

    def switch(self, version: Version) -> None:
        """Let a version that is ready serve, if it is the one that should."""
        model = version.model
        with self._loader.lock:
            if model.candidate is not version or model.serving is None:
                return
            model.candidate = version.beside = None
            model.history.append(model.serving.version.number)
            model.serving.version = version
            canary, model.serving.canary = model.serving.canary, None
            if canary is not None:
                canary.alias.version = version
                canary.ended = "another version serves now"
                if canary.version is version:
                    canary.ended = "it serves now"
        _log.serves(version)
        self._drop_unwanted(model)

    def _drop_unwanted(self, model: Model) -> None:
        with self._loader.lock:
            kept = {model.candidate, model.serving.version if model.serving else None}
            unwanted = [
                version
                for number, version in model.versions.items()
                if number not in model.wanted and version not in kept
            ]
        self._drop(unwanted)

    def _drop(self, versions: Iterable[Version]) -> None:
        for version in versions:
            self._loader.drop(version)
