"""Forward mode of `torch.autograd.forward_ad`: dual Tensors, which have a tangent within a dual level.

Results of dual Tensors are dual: the tangent of a result is the derivative along the tangents of its operands. Tangents
are recorded on the tape, so forward mode and backward passes nest: a tangent can be differentiated, and a gradient can
have a tangent. Each thread has one level at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tracegrad.errors import located
from tracegrad.ops.shape.linear import reshape
from tracegrad.torch.modes import STATE
from tracegrad.torch.tape.backward.dual import DualLevel, paused, set_absent, set_tangent, tangent_of
from tracegrad.torch.tape.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tracegrad.typing import Array


__all__ = [
    "UnpackedDualTensor",
    "dual_level",
    "enter_dual_level",
    "exit_dual_level",
    "make_dual",
    "unpack_dual",
]


def __getattr__(name: str) -> int:
    # PyTorch's own programs read the number of the level; without one it is -1.
    if name == "_current_level":
        return -1 if STATE.level is None else 0
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class UnpackedDualTensor(NamedTuple):
    """Result of `unpack_dual`.

    Parameters
    ----------
    primal : Tensor
        Tensor without a tangent.
    tangent : Tensor or None
        Tangent; None is zero.

    Examples
    --------
    >>> from tracegrad import tensor
    >>> unpack_dual(tensor(1.0))
    UnpackedDualTensor(primal=tensor(1.), tangent=None)
    """

    primal: Any
    tangent: Any


def enter_dual_level() -> int:
    """Begin a dual level, in which Tensors can have tangents.

    Returns
    -------
    int
        Number of the level, which is 0.

    Raises
    ------
    RuntimeError
        If there is a level already.

    Examples
    --------
    >>> enter_dual_level()
    0
    >>> exit_dual_level()
    """
    if STATE.level is not None:
        raise RuntimeError(located("Nested forward mode AD is not supported at the moment"))
    STATE.level = DualLevel()
    STATE.update_unusual()
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """End the dual level, and forget the tangents.

    Parameters
    ----------
    level : int, optional
        Number of the level.

    Raises
    ------
    RuntimeError
        If there is no level, or `level` is not its number.

    Examples
    --------
    >>> level = enter_dual_level()
    >>> exit_dual_level(level=level)
    """
    if STATE.level is None and level is None:
        raise RuntimeError(located("Dual level must be a positive number."))
    if STATE.level is None or level not in (None, 0):
        raise RuntimeError(
            located(
                "Trying to exit a forward AD level that was not the last one that was created. This is not supported."
            )
        )
    STATE.level.end()
    STATE.level = None
    STATE.update_unusual()


class dual_level:
    """Context manager of a dual level, in which Tensors can have tangents.

    Raises
    ------
    RuntimeError
        If there is a level already.

    Examples
    --------
    >>> from tracegrad import tensor
    >>> with dual_level():
    ...     x = make_dual(tensor([1.0, 2.0]), tensor([1.0, 0.0]))
    ...     unpack_dual(x * x).tangent
    tensor([2., 0.])
    """

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *_: object) -> None:
        exit_dual_level()


def make_dual(tensor: Array, tangent: Tensor, *, level: int | None = None) -> Array:
    """Make a view of a Tensor with a tangent, for forward mode.

    Parameters
    ----------
    tensor : Tensor
        Primal value, floating or complex.
    tangent : Tensor
        Tangent, with the shape of `tensor`. Derivatives flow to it too.
    level : int, optional
        Number of the dual level.

    Returns
    -------
    Tensor
        View of `tensor`.

    Raises
    ------
    RuntimeError
        If there is no dual level, the tangent has another shape, or `tensor` has a tangent already.
    ValueError
        If a dtype is neither floating nor complex.
    TypeError
        If an argument is no Tensor.

    Examples
    --------
    >>> from tracegrad import tensor
    >>> with dual_level():
    ...     unpack_dual(make_dual(tensor(3.0), tensor(1.0)) ** 2).tangent
    tensor(6.)
    """
    if STATE.level is None:
        raise RuntimeError(
            located(
                "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() "
                "first."
            )
        )
    for name, x in (("primal", tensor), ("tangent", tangent)):
        if not isinstance(x, Tensor):
            raise TypeError(located(f"make_dual: the {name} must be a Tensor, got {type(x).__name__}"))
        if x.dtype.kind not in "fc":
            raise ValueError(located(f"Expected {name} to be floating point or complex, but got: {x.dtype}"))
    if tangent_of(tangent) is not None:
        raise RuntimeError(
            located(
                "Trying to set a tangent that has a forward gradient at the same level 0, which is not supported: "
                "unpack_dual gives its primal."
            )
        )
    if tangent_of(tensor) is not None:
        raise RuntimeError(
            located(
                "Making a dual Tensor based on a Tensor that already has a forward gradient at the same level 0 is not "
                "supported."
            )
        )
    out = _view_of(tensor)
    set_tangent(out, tangent, root=True)
    return out


def unpack_dual(tensor: Array, *, level: int | None = None) -> UnpackedDualTensor:
    """Split a dual Tensor into a view without a tangent, and the tangent.

    Parameters
    ----------
    tensor : Tensor
        Tensor.
    level : int, optional
        Number of the dual level.

    Returns
    -------
    UnpackedDualTensor
        Pair `(primal, tangent)`. The tangent is None if it is zero, and outside of dual levels.

    Raises
    ------
    TypeError
        If the argument is no Tensor.

    Examples
    --------
    >>> from tracegrad import tensor
    >>> unpack_dual(tensor(1.0)).tangent is None
    True
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(located(f"unpack_dual: expected a Tensor, got {type(tensor).__name__}"))
    if STATE.level is None:
        return UnpackedDualTensor(tensor, None)
    primal, tangent = _view_of(tensor), tangent_of(tensor)
    if tangent is not None:
        set_absent(primal)
    return UnpackedDualTensor(primal, tangent)


def _view_of(x: Array) -> Array:
    with paused():
        return reshape(x, shape=x.shape)
