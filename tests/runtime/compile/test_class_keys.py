"""Classes are known again in another process by what they do, not by what has been asked of them."""

from __future__ import annotations

import typing

from tracegrad.runtime.compile.fingerprint import class_key


class _Annotated:
    w: float = 1.0


def test_a_class_whose_annotations_were_read_is_the_same() -> None:
    before = class_key(_Annotated)
    assert typing.get_type_hints(_Annotated) == {"w": float}
    assert class_key(_Annotated) == before
