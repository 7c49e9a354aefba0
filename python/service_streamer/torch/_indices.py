"""Which numbers the inputs of an exported program may have, where they are indices of a table.

Compiled code raises for an index that its table does not have, but for the whole batch. With the
range in the sidecar, the item is refused when it is submitted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

Range = tuple[int, int]

# Operators whose result has all numbers of their first argument, and no others.
_SAME_NUMBERS = frozenset(
    "aten." + name
    for name in (
        *("_to_copy", "alias", "clone", "contiguous", "detach", "expand", "flatten", "movedim"),
        *("permute", "reshape", "squeeze", "swapaxes", "t", "to", "transpose", "unflatten"),
        *("unsqueeze", "view"),
    )
)


def index_ranges(program: ExportedProgram) -> list[Range | None]:
    """The smallest and the largest number for each input of the program, or None."""
    nodes = {node.name: node for node in program.graph.nodes}
    return [_range(nodes[name]) for name in program.graph_signature.user_inputs]


def _range(given: Node) -> Range | None:
    """What all tables allow that the input is an index of, as it is or with another shape."""
    found: Range | None = None
    same, seen = [given], {given}
    while same:
        node = same.pop()
        for user in node.users:
            limits = _limits(user, node)
            if limits is not None:
                low, high = found or limits
                found = max(low, limits[0]), min(high, limits[1])
            elif user not in seen and _keeps_numbers(user, node):
                seen.add(user)
                same.append(user)
    return found


def _limits(user: Node, index: Node) -> Range | None:
    """The numbers that an operator accepts as an index."""
    name, arguments = _name(user), user.args
    if name in ("aten.embedding", "aten.embedding_bag") and arguments[1] is index:
        return _of(arguments[0], 0, negative=False)
    if name == "aten.index_select" and arguments[2] is index:
        return _of(arguments[0], arguments[1], negative=False)
    if name == "aten.index":
        indices = list(arguments[1])
        masks = any(each is not None and not _is_integer(each) for each in indices)
        if index in indices and not masks:
            return _of(arguments[0], indices.index(index), negative=True)
    return None


def _of(table: Any, dimension: Any, *, negative: bool) -> Range | None:
    rows = table.meta["val"].shape[dimension]
    if not isinstance(rows, int):
        return None
    return (-rows if negative else 0), rows - 1


def _keeps_numbers(user: Node, node: Node) -> bool:
    if _name(user) not in _SAME_NUMBERS or not user.args or user.args[0] is not node:
        return False
    if not (_is_integer(user) and _is_integer(node)):
        return False
    before, after = node.meta["val"].dtype, user.meta["val"].dtype
    return bool(before == after or (before.itemsize < after.itemsize and after.is_signed))


def _name(node: Node) -> str:
    """The name of an operator without its overload, like aten.view."""
    return str(node.target).rpartition(".")[0]


def _is_integer(node: Any) -> bool:
    import torch

    dtype = getattr(node.meta.get("val"), "dtype", None)
    return dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
