"""Parts that are made when somebody looks: equal to what they are made of, and made once."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

from hybridlat.schema.deferred import Deferred


@dataclass
class Maker:
    made: int = 0

    def items(self) -> tuple[int, ...]:
        self.made += 1
        return (1, 2, 3)


def test_it_is_made_once_and_only_when_looked_at() -> None:
    maker = Maker()
    some = Deferred(maker.items)
    assert maker.made == 0 and some.origin is maker
    assert (len(some), some[1], some[1:], list(some)) == (3, 2, (2, 3), [1, 2, 3])
    assert maker.made == 1


def test_it_is_equal_to_a_tuple_of_the_same() -> None:
    some, others = Deferred(Maker().items), Deferred(Maker().items)
    plain = (1, 2, 3)
    assert some == plain and plain == some and some == others
    assert some != (1, 2) and some != [1, 2, 3]
    assert hash(some) == hash((1, 2, 3)) and repr(some) == "(1, 2, 3)"


def test_it_is_passed_on_without_being_made() -> None:
    maker = Maker()
    passed = pickle.loads(pickle.dumps(Deferred(maker.items)))
    assert maker.made == 0 and passed == (1, 2, 3)
