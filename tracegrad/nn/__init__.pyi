"""What `tracegrad.nn` offers, for editors and type checkers: made from the package by `tests/test_stub.py`."""

from builtins import bool as _bool, float as _float, int as _int
from collections.abc import Sequence as _Sequence
from typing import Any

import numpy as _np

from tracegrad.nn import functional as functional


