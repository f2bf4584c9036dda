"""Check gradients against central differences: `gradcheck` and `gradgradcheck`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import UnsupportedError, located
from tracegrad.settings import compiled_at_once
from tracegrad.torch.autograd.gradcheck_compare import (
    SEED,
    BackwardCheck,
    Function,
    GradcheckError,
    Options,
    as_tuple,
    differentiable,
    outputs_of,
    random_cotangent,
    requires,
)
from tracegrad.torch.autograd.gradcheck_forward import ForwardCheck
from tracegrad.torch.tape.backward import engine

if TYPE_CHECKING:
    from tracegrad.typing import Array


__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


# -- public functions ------------------------------------------------------------------------------------------------
def gradcheck(
    func: Function,
    inputs: object,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Check whether the gradients of a function agree with central differences.

    Parameters
    ----------
    func : callable
        Function to a Tensor, or to several Tensors.
    inputs : Tensor, or tuple or list
        Arguments of `func`. Tensors that require grad are checked; they should be float64 or complex128.
    eps : float
        Step of the differences.
    atol, rtol : float
        Elements agree if they differ by at most `atol + rtol * abs(difference)`.
    raise_exception : bool
        Whether a difference raises an error.
    nondet_tol : float
        Largest difference of the results of two backward passes.
    check_undefined_grad : bool
        Whether to check that absent cotangents give gradients of zero.
    check_grad_dtypes : bool
        Whether to check that gradients have the dtype of their input.
    check_batched_grad : bool
        Whether to check that `is_grads_batched` agrees with separate backward passes.
    check_batched_forward_grad : bool
        Not supported.
    check_forward_ad : bool
        Whether to compare tangents of forward mode with differences.
    check_backward_ad : bool
        Whether to compare gradients with differences.
    fast_mode : bool
        Whether to compare one random projection only.
    masked : bool, optional
        Whether cotangents of zero give gradients of zero up to rounding only.

    Returns
    -------
    bool
        True if all checks pass. False otherwise, if `raise_exception` is False.

    Raises
    ------
    GradcheckError
        If a check fails (a RuntimeError).
    ValueError
        If no input requires grad.
    RuntimeError
        If elements of an input share memory.
    AssertionError
        If a step changes the shape of an output.
    UnsupportedError
        For `check_batched_forward_grad`.

    Notes
    -----
    A complex function is checked as two real functions.

    Examples
    --------
    >>> from tracegrad import tensor
    >>> gradcheck(lambda x: x.exp().sum(), tensor([1.0, 2.0], requires_grad=True))
    True
    """
    _require_one_of(check_forward_ad=check_forward_ad, check_backward_ad=check_backward_ad)
    _require(check_backward_ad, "check_backward_ad", check_batched_grad=check_batched_grad)
    _require(check_forward_ad, "check_forward_ad", check_batched_forward_grad=check_batched_forward_grad)
    if check_batched_forward_grad:
        raise UnsupportedError(located("gradcheck: check_batched_forward_grad=True needs tangents in batches"))
    options = Options(
        eps,
        atol,
        rtol,
        nondet_tol,
        check_undefined_grad,
        check_grad_dtypes,
        check_batched_grad,
        fast_mode,
        bool(masked),
    )
    try:
        with compiled_at_once():  # results of two calls are compared bitwise
            check = BackwardCheck(func, as_tuple(inputs), options)
            if not check.is_constant():
                if check_backward_ad:
                    check.run()
                if check_forward_ad:
                    ForwardCheck(check).run()
            if check_backward_ad:
                check.run_rest()
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Function,
    inputs: Array | tuple[Array, ...],
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Check whether the second derivatives of a function agree with central differences of the first.

    Parameters
    ----------
    func : callable
        Function to a Tensor, or to several Tensors.
    inputs : Tensor, or tuple or list
        Arguments of `func`. Tensors that require grad are checked; they should be float64 or complex128.
    grad_outputs : Tensor or sequence of Tensor, optional
        Cotangents of the outputs. The default is random numbers from -1 to 1 that require grad.
    eps : float
        Step of the differences.
    atol, rtol : float
        Elements agree if they differ by at most `atol + rtol * abs(difference)`.
    gen_non_contig_grad_outputs : bool
        Whether the random cotangents are not contiguous in memory.
    raise_exception : bool
        Whether a difference raises an error.
    nondet_tol : float
        As for `gradcheck`.
    check_undefined_grad, check_grad_dtypes, check_batched_grad : bool
        As for `gradcheck`.
    check_fwd_over_rev : bool
        Whether to check forward mode over reverse mode.
    check_rev_over_rev : bool
        Whether to check reverse mode over reverse mode.
    fast_mode, masked : bool
        As for `gradcheck`.

    Returns
    -------
    bool
        True if all checks pass. False otherwise, if `raise_exception` is False.

    Raises
    ------
    GradcheckError, ValueError, RuntimeError, AssertionError
        As for `gradcheck`.

    Examples
    --------
    >>> from tracegrad import tensor
    >>> gradgradcheck(lambda x: x**3, tensor([1.0, 2.0], requires_grad=True))
    True
    """
    _require_one_of(check_fwd_over_rev=check_fwd_over_rev, check_rev_over_rev=check_rev_over_rev)
    options = {"check_undefined_grad": check_undefined_grad, "check_batched_grad": check_batched_grad}
    _require(check_rev_over_rev, "check_rev_over_rev", **options)
    arguments = as_tuple(inputs)
    if grad_outputs is None:
        outputs = differentiable(outputs_of(func, arguments))
        rng = np.random.default_rng(SEED)
        weights = tuple([random_cotangent(x, rng, gen_non_contig_grad_outputs) for x in outputs])
    else:
        weights = as_tuple(grad_outputs)

    def gradients(*args: Any) -> tuple[Any, ...]:
        # Forward mode passes dual Tensors that do not require grad.
        restored = [
            x.requires_grad_() if requires(y) and not requires(x) else x for x, y in zip(args, arguments + weights)
        ]
        xs, cts = restored[: len(arguments)], restored[len(arguments) :]
        wanted = [x for x in xs if requires(x)]
        outputs = differentiable(outputs_of(func, xs))
        result = engine.grad(outputs, wanted, cts, create_graph=True, allow_unused=True)
        return tuple([g for g in result if g is not None])

    return gradcheck(
        gradients,
        arguments + weights,
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        fast_mode=fast_mode,
        masked=masked,
    )


# -- options that need others ----------------------------------------------------------------------------------------
def _require_one_of(**options: bool) -> None:
    if not any(options.values()):
        raise AssertionError(located(f"Expected at least one of {' or '.join(options)} to be True"))


def _require(enabled: bool, name: str, **options: bool) -> None:
    """AssertionError if one of the options is set, and the option `name`, that they need, is not `enabled`."""
    for option, value in options.items():
        if value and not enabled:
            raise AssertionError(located(f"Setting {option}=True requires {name} to be True"))
