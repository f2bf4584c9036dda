"""Python's own containers: traced values lie in them as they are, so they need no others."""

from builtins import dict, isinstance, list, tuple, type  # noqa: UP029 the names are to be found here
from collections.abc import Sequence

__all__ = ["DictBox", "SequenceBox", "dict", "isinstance", "list", "tuple", "type"]

DictBox = dict
SequenceBox = Sequence
