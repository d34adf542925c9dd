"""One topological order for networks, files and kernels."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hybridlat.graph.network import topological_order


@st.composite
def links(draw: st.DrawFn) -> list[set[int]]:
    count = draw(st.integers(1, 7))
    return [draw(st.sets(st.integers(0, count - 1), max_size=3)) for _ in range(count)]


def ready_first(needs: list[set[int]], keys: list[int]) -> list[int]:
    """The definition, word by word."""
    order: list[int] = []
    while True:
        ready = [i for i, n in enumerate(needs) if i not in order and n.issubset(order)]
        if not ready:
            return order
        order.append(min(ready, key=lambda i: (keys[i], i)))


@given(links(), st.data())
def test_the_least_key_of_all_that_are_ready_comes_first(
    needs: list[set[int]], data: st.DataObject
) -> None:
    keys = data.draw(st.lists(st.integers(0, 2), min_size=len(needs), max_size=len(needs)))
    assert topological_order(needs, keys.__getitem__) == ready_first(needs, keys)
    assert topological_order(needs) == ready_first(needs, [0] * len(needs))


def test_what_is_on_a_loop_or_behind_one_is_left_out() -> None:
    assert topological_order([set(), {2}, {1}, {1}, {0}]) == [0, 4]
