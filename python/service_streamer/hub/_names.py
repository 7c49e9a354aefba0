"""The names of models, versions and labels."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from .._base.messages import short
from ._errors import UnknownModel
from ._models import Alias, Model, Version

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_FEW = 5  # names in a message
_ALIKE, _LONGEST = 64, 64  # names that are compared, and their characters

VERSION = re.compile(r"0|[1-9][0-9]{0,17}")


def check_name(name: object) -> None:
    """Raise ValueError if this cannot be the name of a model."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(
            f'the name of a model must consist of letters, digits, "_", "." and "-", not {name!r}'
        )


class Names:
    """Finds models by their names."""

    def __init__(self, models: Mapping[str, Model]) -> None:
        self._models = models

    def model(self, name: str) -> Model:
        """Return a model.

        Raises:
            UnknownModel: there is none with this name.
        """
        model = self._models.get(name)
        if model is None:
            raise UnknownModel(f"the hub has no model {short(name)}; {self._near(name)}")
        return model

    def _near(self, name: str) -> str:
        """Return a few names for a message: clients may ask often, and for anything."""
        if len(self._models) <= _FEW:
            return f"its models are: {', '.join(self._models) or 'none'}"
        alike = [each for each in list(self._models) if each[:2].lower() == name[:2].lower()]
        near = difflib.get_close_matches(name[:_LONGEST], alike[:_ALIKE], _FEW)
        return f"did you mean {' or '.join(near)}?" if near else f"it has {len(self._models)}"

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
            versions = ", ".join(map(str, list(model.versions)[-_FEW:]))
            labels = ", ".join(list(model.labels)[:_FEW]) or "none"
            raise UnknownModel(
                f"model {base!r} has no version or label {short(which)}; its versions are "
                f"{versions}, its labels {labels}"
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
