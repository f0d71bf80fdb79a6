"""Records and computed properties: what they are compared by, and how often they compute."""

from __future__ import annotations

from tilewright.base.fast_records import computed, record, slotted


@record
class Sum:
    terms: tuple[int, ...]
    const: int = 0

    @computed
    def total(self) -> int:
        """The value."""
        asked.append(self.const)
        return sum(self.terms) + self.const


@slotted
class Product:
    terms: tuple[int, ...]
    const: int = 0


asked: list[int] = []


def test_records_are_their_fields() -> None:
    for kind in (Sum, Product):
        assert kind((1, 2)) == kind((1, 2), 0)
        assert hash(kind((1, 2))) == hash(kind((1, 2)))
        assert kind((1, 2)) != kind((1, 2), 1)
    assert Sum((1,)) != Product((1,))


def test_a_property_is_computed_once_per_object_and_is_no_field() -> None:
    asked.clear()
    one, other = Sum((1, 2), 3), Sum((1, 2), 3)
    assert (one.total, one.total) == (6, 6)
    assert asked == [3]
    assert one == other
    assert hash(one) == hash(other)
    assert other.total == 6
    assert asked == [3, 3]
