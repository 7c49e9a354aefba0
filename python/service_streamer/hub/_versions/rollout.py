"""Brings new versions of models into service, and takes old ones out of it."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from ..._base.messages import describe
from ..._waiting.threads import original
from .. import _log
from .._errors import UnknownModel
from .._loading.loader import Loader
from .._models import Alias, Model, State, Version
from .._spec import ModelSpec
from .canary import Canary
from .folder import Found
from .model_file import ModelFile
from .plan import CanaryPlan


class Rollout:
    """The versions of the models of a folder. Any thread may call the methods; none blocks.

    A new version is loaded beside the one that serves. When it is ready, the name stands for the
    new one. Then the old one is drained and dropped, unless the policy or a label keeps it. So the
    newest version that can be loaded serves. The ones that cannot stay, and are tried again after a
    pause and when their files change.
    """

    def __init__(self, models: dict[str, Model], loader: Loader) -> None:
        self._models = models
        self._loader = loader
        loader.on_ready = self.switch
        loader.on_failed = self.replace
        # Held while it is decided which versions should be there; before that of the loader.
        # Reentrant: the end of a request may end a canary.
        self._deciding = original("_thread", "RLock")()

    def apply(self, found: Mapping[str, Found], changed: Collection[str]) -> float | None:
        """Do what has changed in the folder. One thread at a time calls it.

        Args:
            found: all models of the folder.
            changed: the names of those that are new or have changed.

        Returns:
            The monotonic time at which it should be called again, to try a version again that could
            not be loaded. None: it need not be.
        """
        for name in self._models.keys() - found.keys():
            model = self._models.pop(name)
            self._drop(list(model.versions.values()))
        now = time.monotonic()
        tried = [
            name
            for name, model in self._models.items()
            if model.trying is not None
            or any(each.may_try_again for each in model.versions.copy().values())
        ]
        for name in dict.fromkeys([*changed, *tried]):
            each = found[name]
            model = self._models.get(name) or Model(name, pinned=False)
            errors = list(each.errors)
            try:
                self._apply(model, each, errors)
            except Exception as error:  # an option is invalid
                errors.append(describe(error))
            shown = "; ".join(errors)
            if shown and shown != model.error:
                _log.refused(name, shown)
            model.error = shown
            self._models[name] = model
        attempts = [
            each.next_attempt
            for model in self._models.values()
            for each in model.versions.copy().values()
        ]
        return min((at for at in attempts if at is not None and at > now), default=None)

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
            model.history = [each for each in model.history if each != numbers[0]]
        self._aspire(model, file)
        version = model.versions[numbers[0]]
        self._loader.load(version)  # also if it has failed
        return version

    def begin_canary(self, model: Model, plan: CanaryPlan) -> Version:
        """Load a version that gets its share of the requests when it is ready. Return the version.

        It replaces an earlier canary. If the version cannot be loaded, `model.trying` stays the
        plan, and another load of the version begins the canary.

        Raises:
            UnknownModel: the folder does not have it.
            ValueError: it serves already.
        """
        with self._deciding:  # or the version may be dropped meanwhile
            spec = self._spec_of_canary(model, plan.version)
            with self._loader.lock:
                model.trying = plan
                model.wanted.add(plan.version)
                version = model.get(plan.version) or model.add(plan.version, spec)
            self._loader.load(version)
            if version.state is State.READY:  # already. One that is drained is loaded again
                self._begin_tried(version)
            return version

    def check_canary(self, model: Model, number: int) -> None:
        """Raise as `begin_canary` does."""
        self._spec_of_canary(model, number)

    def _spec_of_canary(self, model: Model, number: int) -> ModelSpec:
        file, serving = model.file, model.serving
        if file is None or serving is None or number not in model.folders:
            versions = ", ".join(map(str, sorted(model.folders))) or "none"
            raise UnknownModel(
                f"the folder of model {model.name!r} has no version {number}; it has {versions}"
            )
        if serving.version.number == number:
            raise ValueError(f"version {number} of model {model.name!r} serves already")
        return _spec(model, file, number)

    def _begin_tried(self, version: Version) -> None:
        """Let a version that is ready get its share of the requests, if it is to be tried."""
        model, plan = version.model, version.model.trying
        if plan is None or plan.version != version.number:
            return
        canary = Canary(version, plan, self.end)
        with self._loader.lock:
            serving = model.serving
            if version.state in (State.LOADING, State.FAILED) or serving is None:
                return
            if version.dropped or model.trying is not plan:
                return
            model.trying = None
            if serving.version is version:  # the policy has changed meanwhile
                return
            before: Canary | None = model.canary
            if before is not None:  # its counts end nothing any more
                before.ended = before.ended or "another canary has begun"
            model.canary = serving.canary = canary
        if before is not None and before.version is not version:
            self._retract(before, before.ended)

    def end(self, canary: Canary, why: str) -> None:
        """Take a canary out of service, because it is worse."""
        _log.refused(canary.version.name, f"the canary has ended: {why}")
        self._retract(canary, why)

    def retract(self, model: Model) -> bool:
        """Take the canary of a model out of service. Return False if there is none."""
        canary: Canary | None = None if model.serving is None else model.serving.canary
        if canary is None:
            return False
        self._retract(canary, "it was taken out of service")
        return True

    def cancel(self, model: Model) -> bool:
        """Do what `retract` does, also with a canary that is still being loaded."""
        with self._deciding:
            with self._loader.lock:
                trying, model.trying = model.trying, None
            had_canary = self.retract(model)
            if trying is not None:
                self._decide_again(model)  # drops the version
            return had_canary or trying is not None

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

    def let_serve(self, model: Model, number: int) -> None:
        """Let a version serve, whatever the policy says, until the model.toml changes."""
        model.promoted = number
        self._decide_again(model)

    def _retract(self, canary: Canary, why: str) -> None:
        model = canary.version.model
        with self._loader.lock:
            canary.ended = canary.ended or why
            serving = model.serving
            assert serving is not None
            if serving.canary is canary:
                serving.canary = None
            canary.alias.version = serving.version  # for the requests that it has not accepted
        self._decide_again(model)

    def _apply(self, model: Model, found: Found, errors: list[str]) -> None:
        if found.file is None:
            return
        if model.file != found.file:
            model.pinned = found.file.pin
            model.file = found.file
            model.promoted = None
        for number in found.versions.keys() - model.folders.keys():
            version = model.get(number)
            if version is None or version.state is not State.READY:
                continue
            if version.stamp != found.stamps.get(number):
                _log.files_replaced(version)
        model.folders, model.stamps = found.versions, found.stamps
        model.changing = found.changing
        model.rejected &= found.versions.keys()
        missing = set(found.file.labels.values()) - found.versions.keys()
        errors += [f"a label names version {number}, which is missing" for number in missing]
        canary: Canary | None = None if model.serving is None else model.serving.canary
        if canary is not None and canary.version.number not in found.versions:
            self._retract(canary, "its folder is gone")
        if not found.versions and not found.changing:  # of a copy that goes on
            errors.append("it has no version")
        self._aspire(model, found.file)
        try:
            self._follow_file(model, found.file)
        except (UnknownModel, ValueError) as error:
            errors.append(str(error))

    def _follow_file(self, model: Model, file: ModelFile) -> None:
        """Begin or end the canary that model.toml asks for. One that has ended begins no more."""
        plan, before = file.canary_plan, model.declared
        if plan == before:
            tried = None if plan is None or model.trying is not before else model.get(plan.version)
            # A version is unloaded here if another canary was tried meanwhile.
            if tried is not None and (tried.state is State.UNLOADED or tried.may_try_again):
                self._loader.load(tried)
            return
        if plan is not None:
            self.begin_canary(model, plan)
        else:
            model.trying = None if model.trying is before else model.trying
            canary: Canary | None = None if model.serving is None else model.serving.canary
            if canary is not None and canary.plan is before:
                self._retract(canary, "model.toml has changed")
        model.declared = plan

    def _aspire(self, model: Model, file: ModelFile, failed: Version | None = None) -> None:
        """Add the versions that should be there, and begin to load the one that should serve.

        Args:
            model: of the folder.
            file: its model.toml.
            failed: the version that could not be loaded just now. None: there is none.
        """
        with self._deciding:
            self._decide(model, file, failed)

    def _decide(self, model: Model, file: ModelFile, failed: Version | None) -> None:
        folders: dict[int, Path] = model.folders
        known = [each for each in model.versions.copy().values() if not each.dropped]
        broken = {each.number for each in known if each.is_broken}
        order = file.aspired(folders.keys() - model.rejected, broken)
        if model.promoted in folders and model.promoted not in model.rejected:
            order = [model.promoted, *(each for each in order if each != model.promoted)]
        labelled = {label: each for label, each in file.labels.items() if each in folders}
        canary: Canary | None = None if model.serving is None else model.serving.canary
        plans = (model.trying, None if canary is None else canary.plan)
        tried = [plan.version for plan in plans if plan is not None and plan.version in folders]
        wanted = dict.fromkeys([*order, *labelled.values(), *tried])
        specs = {number: _spec(model, file, number) for number in wanted}
        begun, changed = [], []
        with self._loader.lock:
            for number, spec in specs.items():
                version = model.get(number)
                is_new = version is None
                if version is None:
                    version = model.add(number, spec)
                stamps = (version.spec.code_stamp, version.next_spec.code_stamp)
                if version.state is State.READY and spec.code_stamp not in stamps:
                    changed.append(version)
                version.stamp = model.stamps.get(number)
                version.changing = number in model.changing
                version.next_spec, version.made_of = spec, (file, version.stamp)
                if version.state in (State.UNLOADED, State.FAILED):
                    version.spec = spec
                if is_new and spec.load == "start":
                    begun.append(version)
            model.order = order
            model.wanted = set(wanted)
            for label in model.labels.keys() - labelled.keys():
                del model.labels[label]
            for label, number in labelled.items():
                version = model.versions[number]
                alias = model.labels.setdefault(label, Alias(f"{model.name}@{label}", version))
                alias.version = version
            replaced = self._replace(model, failed)
            candidate = self._choose(model, failed)
            if model.serving is not None and (replaced or _is_tried_alone(model.serving.version)):
                begun.append(model.serving.version)
            is_another = candidate is not model.candidate
            if candidate is not None and (is_another or candidate.may_try_again):
                begun.append(candidate)
            model.candidate = candidate
        for version in changed:
            _log.code_changed(version)
        if replaced and failed is not None and model.serving is not None:
            _log.replaced(failed, model.serving.version)
        for version in begun:
            self._loader.load(version)
            if version.state is State.READY:
                self.switch(version)
        self._drop_unwanted(model)

    def _replace(self, model: Model, failed: Version | None) -> bool:
        """Let the next version serve if the one that should cannot be loaded. The lock is held.

        Returns:
            True if there is one that has not failed yet, or whose pause is over.
        """
        serving = model.serving
        if serving is None or not (serving.version is failed or _has_failed(serving.version)):
            return False
        versions = [model.versions[number] for number in model.order]
        place = versions.index(serving.version) + 1 if serving.version in versions else 0
        for version in versions[place:]:
            if not version.is_broken or version.may_try_again or (failed and version.is_due):
                serving.version = version
                return True
        if failed is not None and place:  # all have failed: begin again with the best one
            serving.version = versions[0]
        return False

    def _choose(self, model: Model, failed: Version | None) -> Version | None:
        """Return the version that takes over when it is loaded. The lock is held."""
        serving = model.serving
        if serving is None:
            return None
        versions = [model.versions[number] for number in model.order]
        if serving.version in versions:
            better = versions[: versions.index(serving.version)]
        else:
            newer = [each for each in versions if each.number > serving.version.number]
            better = newer or versions[:1]  # a rollback goes to one version only
        for version in versions:
            version.beside = serving.version if version in better else None
        for version in better:
            is_tried = version.state is State.LOADING or version.may_try_again
            if version is not failed and (is_tried or not version.is_broken):
                return version
        return None

    def replace(self, failed: Version) -> None:
        """Choose another version in place of one that could not be loaded just now."""
        if not failed.dropped:
            self._decide_again(failed.model, failed)

    def switch(self, version: Version) -> None:
        """Let a version that is ready serve, or be the canary, if it is the one that should."""
        model = version.model
        self._begin_tried(version)
        with self._loader.lock:
            if model.serving is None or not _is_better(version, model.serving.version):
                return
            version.beside = None
            if not model.serving.version.is_broken:
                model.history.append(model.serving.version.number)
            model.serving.version = version
            canary, model.serving.canary = model.serving.canary, None
            if canary is not None:
                canary.alias.version = version
                canary.ended = "another version serves now"
                if canary.version is version:
                    canary.ended = "it serves now"
        _log.serves(version)
        self._decide_again(model)

    def _decide_again(self, model: Model, failed: Version | None = None) -> None:
        if model.file is None:
            return
        try:
            self._aspire(model, model.file, failed)
        except Exception as error:  # an option is invalid
            _log.refused(model.name, describe(error))

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


def _spec(model: Model, file: ModelFile, number: int) -> ModelSpec:
    """Return the spec of a version. It is made again if its folder or model.toml has changed.

    Also after a failure: the reason may be outside this folder, such as in a list of packages.
    """
    version, stamp = model.get(number), model.stamps.get(number)
    if version is None or stamp is None or version.is_broken or version.made_of != (file, stamp):
        return file.spec(model.folders[number])
    return version.next_spec


def _has_failed(version: Version) -> bool:
    return version.is_broken and version.state is State.FAILED


def _is_tried_alone(version: Version) -> bool:
    """Return True if another attempt is due, and no request has to ask for it."""
    is_eager = version.spec.load == "start" or version.stamp != version.tried_stamp
    return is_eager and version.may_try_again


def _is_better(version: Version, serving: Version) -> bool:
    """Return True if a version that is loaded should serve in place of another one."""
    order = version.model.order
    if version is serving or version.number not in order:
        return False
    if serving.number not in order or _has_failed(serving):
        return True
    return order.index(version.number) < order.index(serving.number)
