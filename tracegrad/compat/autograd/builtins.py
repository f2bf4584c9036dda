"""Python's own containers: they hold traced values directly, so no replacements are necessary."""

from builtins import dict, isinstance, list, tuple, type  # noqa: UP029 the names are to be found here
from collections.abc import Sequence

__all__ = ["DictBox", "SequenceBox", "dict", "isinstance", "list", "tuple", "type"]

DictBox = dict
SequenceBox = Sequence
