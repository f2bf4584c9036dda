"""Class `RegisteredMethods`: the methods of a Tensor that are functions of the registry, for the type checker.

`tensor_methods.py` sets the methods of its class from the registry. Their signatures are in the stub of this module,
which `tests/package/test_stub.py` writes.
"""


class RegisteredMethods:
    """Base class whose stub declares the registered methods."""

    __slots__ = ()
