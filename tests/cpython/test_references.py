"""What is assumed of reference counts."""

from __future__ import annotations

from typing import Any

from tracegrad.cpython.references import (
    COUNT_IN_GET,
    COUNT_OF_ATTRIBUTE,
    COUNT_OF_LOOP_ITEM,
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


class _Counts:
    def __get__(self, instance: object, owner: type) -> int:
        count = reference_count(instance)
        return count - COUNT_IN_GET


class _Model:
    excess = _Counts()


def test_an_instance_of_an_expression_has_the_count_of_descriptors() -> None:
    temporary = _Model().excess
    model = _Model()
    held = model.excess
    assert temporary <= 0 < held
