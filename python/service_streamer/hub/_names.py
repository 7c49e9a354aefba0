"""The names of models, versions and labels."""

from __future__ import annotations

import re

from ._errors import UnknownModel
from ._models import Alias, Model, Version

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
VERSION = re.compile(r"0|[1-9][0-9]{0,17}")


def check_name(name: object) -> None:
    """Raise ValueError if this cannot be the name of a model."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(
            f'the name of a model must consist of letters, digits, "_", "." and "-", not {name!r}'
        )


class Names:
    """Finds models by their names."""

    def __init__(self, models: dict[str, Model]) -> None:
        self._models = models

    def model(self, name: str) -> Model:
        """Return a model.

        Raises:
            UnknownModel: there is none with this name.
        """
        model = self._models.get(name)
        if model is None:
            known = ", ".join(self._models) or "none"
            raise UnknownModel(f"the hub has no model {name!r}; its models are: {known}")
        return model

    def find(self, name: str) -> Alias:
        """Return what "name", "name@3" or "name@label" stands for.

        Raises:
            UnknownModel: there is no such model, version or label.
            TypeError: it is not a str.
        """
        if not isinstance(name, str):
            raise TypeError(f"the name of a model must be a str, not {name!r}")
        base, found, which = name.partition("@")
        model = self.model(base)
        if not found:
            if model.serving is None:
                raise UnknownModel(f"model {name!r} has no version: {model.error}")
            return model.serving
        if which in model.labels:
            return model.labels[which]
        version = model.versions.get(int(which)) if VERSION.fullmatch(which) else None
        if version is None:
            versions = ", ".join(map(str, model.versions))
            labels = ", ".join(model.labels) or "none"
            raise UnknownModel(
                f"model {base!r} has no version or label {which!r}; its versions are {versions}, "
                f"its labels {labels}"
            )
        return Alias(name, version)

    def versions(self, name: str) -> list[Version]:
        """Return the version of a name, or all versions of a model.

        Raises:
            UnknownModel: there is no such model, version or label.
        """
        if "@" in name:
            return [self.find(name).version]
        return list(self.model(name).versions.values())
