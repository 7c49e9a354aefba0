"""Prints the rooms of the Python package, and which of their arrows go up.

A room is a package or a module directly below the folder, and the folder's own `__init__`. An arrow
is a pair of rooms of which one imports the other, also in a function, for type checkers only, or by
a string. The rooms are put in the order that leaves few arrows up.

    python tests/tools/rooms.py [folder]
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/python/package"))

from test_levels import arrows, room_of  # noqa: E402

Graph = dict[str, set[str]]


def graph_of(folder: Path) -> tuple[Graph, Graph]:
    """The modules that each module uses, and the rooms that each room uses."""
    modules = arrows(folder)
    rooms: Graph = defaultdict(set)
    for name, used in modules.items():
        rooms[room_of(name)] |= {room_of(each) for each in used} - {room_of(name)}
    return modules, dict(rooms)


def in_order(graph: Graph) -> list[str]:
    """The rooms from the bottom up: next comes one that uses the least of those that are left."""
    left, order = set(graph), []
    while left:
        users = {name: sum(name in graph[each] for each in left) for name in left}
        order.append(min(left, key=lambda name: (len(graph[name] & left), -users[name], name)))
        left.remove(order[-1])
    return order


def reached(graph: Graph, start: str) -> set[str]:
    """All that a node uses, directly or not."""
    found: set[str] = set()
    left = set(graph[start])
    while left:
        found |= left
        left = {other for name in left for other in graph[name]} - found
    return found


def circles(graph: Graph) -> int:
    """The number of groups whose members all use each other, directly or not."""
    below = {name: reached(graph, name) for name in graph}
    groups = {frozenset(each for each in below[name] if name in below[each]) for name in graph}
    return len(groups - {frozenset()})


def main() -> None:
    """Print each room with its floor and what it uses, then the numbers."""
    folder = Path(sys.argv[1]) if sys.argv[1:] else ROOT / "python/service_streamer"
    modules, rooms = graph_of(folder)
    order = in_order(rooms)
    floor: dict[str, int] = {}
    up = []
    for name in order:
        up += [(name, other) for other in rooms[name] if other not in floor]
        floor[name] = max((floor[each] + 1 for each in rooms[name] if each in floor), default=0)
    for name in sorted(order, key=lambda each: (floor[each], each)):
        used = (each or "__init__" for each in sorted(rooms[name]))
        print(f"{floor[name]:3} {name or '__init__':18}", *used)
    for name, other in sorted(up):
        print(f"up: {name or '__init__'} uses {other or '__init__'}")
    print(
        f"{len(rooms)} rooms on {max(floor.values()) + 1} floors, "
        f"{sum(map(len, rooms.values()))} arrows, {len(up)} up, {circles(rooms)} circles of rooms, "
        f"{circles(modules)} of modules"
    )


if __name__ == "__main__":
    main()
