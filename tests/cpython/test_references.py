"""What is assumed of reference counts."""

from __future__ import annotations

from typing import Any

from tracegrad.cpython.frames import frame_at
from tracegrad.cpython.references import (
    COUNT_IN_GET,
    COUNT_OF_ATTRIBUTE,
    COUNT_OF_LOOP_ITEM,
    is_lent,
    other_references,
    reference_count,
)


class _Owner:
    def __init__(self) -> None:
        self.item = object()


def test_other_references_are_those_besides_the_variable() -> None:
    x = object()
    counts = [other_references(x)]
    holders: list[Any] = [x]
    counts.append(other_references(x))
    holders += [(x,), {"x": x}]
    counts.append(other_references(x))
    del holders
    counts.append(other_references(x))
    assert counts == [0, 1, 3, 0]


def test_an_attribute_that_is_not_shared_has_the_count_of_attributes() -> None:
    owner, others = _Owner(), list[Any]()
    alone = reference_count(owner.item)
    others.append(owner.item)
    shared = reference_count(owner.item)
    assert (alone, shared) == (COUNT_OF_ATTRIBUTE, COUNT_OF_ATTRIBUTE + 1)


def test_an_element_that_only_its_list_holds_has_the_count_of_loop_items() -> None:
    items = [object(), object(), object()]
    shared = items[1]
    counts = []
    for item in items:
        counts.append(reference_count(item) - COUNT_OF_LOOP_ITEM)
    assert counts == [0, 1, 0]
    del shared


class _Temporary:
    def __get__(self, instance: object, owner: type) -> bool:
        return reference_count(instance) <= COUNT_IN_GET and not is_lent(frame_at(1))


class _Model:
    is_temporary = _Temporary()

    def of_self(self) -> Any:
        return self.is_temporary


_HELD = _Model()


def test_an_instance_of_an_expression_is_a_temporary() -> None:
    model = _Model()
    holder = _Owner()
    holder.item = _Model()
    for _ in range(30):  # Python specializes code that runs often
        temporary = _Model().is_temporary
        held = model.is_temporary, _HELD.is_temporary, holder.item.is_temporary, model.of_self()  # type: ignore[attr-defined]
        other = _Model()
        at_once = other.is_temporary
        assert (temporary, held, at_once) == (True, (False,) * 4, False)
