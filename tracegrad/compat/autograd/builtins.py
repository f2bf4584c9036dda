"""Python's own containers: they hold traced values directly, so no replacements are necessary."""

from builtins import dict, isinstance, list, tuple, type  # noqa: UP029 users import the names from here
from collections.abc import Sequence

__all__ = ["DictBox", "SequenceBox", "dict", "isinstance", "list", "tuple", "type"]

DictBox = dict
SequenceBox = Sequence
