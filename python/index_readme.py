"""The README as the page of a package index shows it: with absolute links. Used by the build."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# the end of [text](target) or ![text](target); a target with a scheme or in the page itself stays
RELATIVE = re.compile(r"(!\[[^]]*)?\]\((?!\w+:|#)([^)\s]+)\)")


def absolute_links(text: str, repository: str, version: str) -> str:
    """Make relative links of a Markdown text point into the repository, at the tag of a version.

    Args:
        text: a page in the root folder.
        repository: the address of the repository, without a slash at its end.
        version: such as "1.0.0"; the tag is "v1.0.0".
    """

    def absolute(link: re.Match[str]) -> str:
        kind = "raw" if link[1] else "blob"
        return f"{link[1] or ''}]({repository}/{kind}/v{version}/{link[2]})"

    return RELATIVE.sub(absolute, text)


def dynamic_metadata(settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, Any]:
    """The field ``readme``, for scikit-build-core."""
    text = Path("README.md").read_text(encoding="utf-8")
    text = absolute_links(text, project["urls"]["Repository"], project["version"])
    return {"readme": {"content-type": "text/markdown", "text": text}}
