"""Brings new versions of models into service, and takes old ones out of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from . import _log
from ._errors import UnknownModel
from ._folder import Found
from ._loader import Loader
from ._model_file import ModelFile
from ._models import Alias, Model, State, Version


class Rollout:
    """The versions of the models of a folder. Any thread may call the methods; none blocks.

    A new version is loaded beside the one that serves. When it is ready, the name stands for the
    new one. Then the old one is drained and dropped, unless the policy or a label keeps it.
    """

    def __init__(self, models: dict[str, Model], loader: Loader) -> None:
        self._models = models
        self._loader = loader
        loader.on_ready = self.switch

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
                each.errors.append(f"{type(error).__name__}: {error}")
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
        numbers = [number for number in reversed(model.history) if number in model.folders]
        if file is None or serving is None or not numbers:
            raise UnknownModel(f"model {model.name!r} has no earlier version to go back to")
        if file.policy.startswith("pinned"):
            raise ValueError(f"the policy of model {model.name!r} is {file.policy!r}: change it")
        with self._loader.lock:
            model.rejected.add(serving.version.number)
            model.history.remove(numbers[0])
        # Versions between the two are not in question either: the earlier one has proved itself.
        model.rejected.update(each for each in model.folders if each > numbers[0])
        self._aspire(model, file)
        return model.versions[numbers[0]]

    def _apply(self, model: Model, found: Found) -> None:
        if found.file is None:
            return
        if model.file != found.file:
            model.pinned = found.file.pin
            model.file = found.file
        model.folders = found.versions
        model.rejected &= found.versions.keys()
        missing = set(found.file.labels.values()) - found.versions.keys()
        found.errors += [f"a label names version {number}, which is missing" for number in missing]
        if not found.versions:
            found.errors.append("it has no version")
        self._aspire(model, found.file)

    def _aspire(self, model: Model, file: ModelFile) -> None:
        """Add the versions that should be there, and begin to load the one that should serve."""
        folders: dict[int, Path] = model.folders
        aspired = file.aspired(folders.keys() - model.rejected)
        labelled = {label: each for label, each in file.labels.items() if each in folders}
        wanted = dict.fromkeys([*aspired, *labelled.values()])
        specs = {number: file.spec(folders[number]) for number in wanted}
        begun = []
        with self._loader.lock:
            for number, spec in specs.items():
                version = model.versions.get(number)
                if version is not None:
                    version.spec = spec  # for its next load
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
