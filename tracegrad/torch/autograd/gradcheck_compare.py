"""Comparison of `gradcheck`: the Jacobian of a function at one point, by the tape and by finite differences.

For each output and each input that requires grad, the Jacobian is computed twice on the tape, one cotangent at a time,
and once by differences. Printed Jacobians have a row for each element of the input. The fast mode compares one random
combination `v^T J u` of the elements instead. Random numbers come from a separate generator with a fixed seed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracegrad.errors import TracegradError, located
from tracegrad.torch.autograd.finite_differences import NumericalDerivative, along, columns
from tracegrad.torch.tape.backward import engine
from tracegrad.torch.tape.recording.node import unmasked
from tracegrad.torch.tape.tensors.tensor import Tensor, of_array
from tracegrad.typing import NDArray
from tracegrad.utils.lazy_dataclass import record

__all__ = [
    "SEED",
    "BackwardCheck",
    "GradcheckError",
    "Options",
    "as_tuple",
    "differentiable",
    "outputs_of",
    "random_cotangent",
    "requires",
    "unit",
]

Array = NDArray
Function = Callable[..., Any]

SEED = 5323
_DOUBLE = (np.dtype(np.float64), np.dtype(np.complex128))


class GradcheckError(TracegradError, RuntimeError):
    """A gradient that `gradcheck` or `gradgradcheck` found to be wrong."""


@record(frozen=True)
class Options:
    eps: float
    atol: float
    rtol: float
    nondet_tol: float
    check_undefined_grad: bool
    check_grad_dtypes: bool
    check_batched_grad: bool
    fast_mode: bool
    masked: bool


# -- arguments -------------------------------------------------------------------------------------------------------
def as_tuple(x: object) -> tuple[Any, ...]:
    return tuple(x) if isinstance(x, tuple | list) else (x,)


def requires(x: object) -> bool:
    return isinstance(x, Tensor) and x.requires_grad


def differentiable(outputs: Sequence[Any]) -> list[Any]:
    return [x for x in outputs if x.requires_grad]


def outputs_of(func: Function, inputs: Sequence[Any]) -> tuple[Any, ...]:
    outputs = as_tuple(func(*inputs))
    for x in outputs:
        if not isinstance(x, Tensor):
            raise TypeError(
                located(f"gradcheck expects func to return a Tensor or several, but got {type(x).__name__}")
            )
    return outputs


def _check_input(i: int, x: Tensor) -> None:
    """Warn of single precision; raise for memory that cannot be perturbed element by element."""
    if x.dtype not in _DOUBLE:
        message = (
            f"Input #{i} requires gradient and is not a double precision floating point or complex. This check will "
            "likely fail if all the inputs are not of double precision floating point or complex. "
        )
        warnings.warn(located(message), UserWarning, stacklevel=4)
    if any(stride == 0 and size > 1 for stride, size in zip(x.array.strides, x.array.shape)):
        raise RuntimeError(
            located(
                f"The {i}th input has a dimension with stride 0. gradcheck only supports inputs that are "
                "non-overlapping to be able to compute the numerical gradients correctly. You should call .contiguous "
                "on the input before passing it to gradcheck."
            )
        )
    if not x.array.flags.writeable:
        raise RuntimeError(located(f"The {i}th input is read-only memory; call .clone() on it before gradcheck."))


def random_cotangent(x: Tensor, rng: np.random.Generator, strided: bool) -> Any:
    """Return a Tensor like `x` of random numbers from -1 to 1 that requires grad."""
    values = rng.uniform(-1.0, 1.0, x.shape)
    if x.dtype.kind == "c":
        values = values + 1j * rng.uniform(-1.0, 1.0, x.shape)
    if strided and x.shape:
        buffer = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
        buffer[..., ::2] = values
        return of_array(buffer[..., ::2], True)
    return of_array(np.asarray(values, x.dtype), True)


# -- the check -------------------------------------------------------------------------------------------------------
class _OutputComponent:
    """Real or imaginary part of an output: its extraction, its cotangent, and its name."""

    def __init__(self, extract: Callable[[Any], Any], seed: complex, name: str = ""):
        self.extract, self.seed = extract, seed
        self.message_prefix = f"While considering the {name} part of complex outputs only, " if name else ""


_REAL = (_OutputComponent(np.real, 1.0),)
_BOTH = (_OutputComponent(np.imag, 1j, "imaginary"), _OutputComponent(np.real, 1.0, "real"))


class BackwardCheck:
    """One check of one function at one point."""

    def __init__(self, func: Function, inputs: tuple[Any, ...], options: Options):
        self.func, self.inputs, self.options = func, inputs, options
        self.wanted = [x for x in inputs if requires(x)]
        for i, x in enumerate(inputs):
            if requires(x):
                _check_input(i, x)
        if not self.wanted:
            raise ValueError(
                located(
                    "gradcheck expects at least one input tensor to require gradient, but none of them have "
                    "requires_grad=True."
                )
            )

    def run(self) -> None:
        """Compare with backward passes."""
        every = outputs_of(self.func, self.inputs)
        self.compare(every, differentiable(every))

    def run_rest(self) -> None:
        """Run the other checks of backward passes."""
        outputs = differentiable(outputs_of(self.func, self.inputs))
        if self.options.check_batched_grad:
            for i, x in enumerate(outputs):
                self.compare_batched(i, x)
        self.expect_zero(outputs)
        if self.options.check_undefined_grad:
            self.expect_zero_of_nothing()

    # -- values of the function --------------------------------------------------------------------------------------
    def arrays(self) -> list[Array]:
        """Copy the current outputs."""
        return [np.array(x.array) for x in outputs_of(self.func, self.inputs)]

    def derivatives(self) -> list[list[NumericalDerivative]]:
        """Compute the derivatives, for each input and each output of the function."""
        return [columns(self.arrays, x.array, self.options.eps) for x in self.wanted]

    # -- values of the tape ------------------------------------------------------------------------------------------
    def pull(self, out: Tensor, ct: Array) -> list[Any]:
        # Each pass needs a new array, because a gradient may be the cotangent itself.
        weight = of_array(np.array(ct.reshape(out.shape), out.dtype))
        return list(engine.grad(out, self.wanted, weight, retain_graph=True, allow_unused=True))

    def jacobians(self, out: Tensor, seed: complex) -> list[Array]:
        """Compute, for each input, the derivatives of a part of an output, as a matrix: input by output elements."""
        cts = np.eye(out.numel(), dtype=out.dtype) * seed
        return self.gathered([self.pull(out, ct) for ct in cts])

    def combination(self, out: Tensor, ct: Array) -> list[Array]:
        return [j[:, 0] for j in self.gathered([self.pull(out, ct)])]

    def gathered(self, rows: Sequence[Sequence[Any]]) -> list[Array]:
        """Store gradients as the columns of matrices, one for each input."""
        matrices = []
        for k, x in enumerate(self.wanted):
            matrix = np.zeros((x.numel(), len(rows)), x.dtype)
            for j, row in enumerate(rows):
                if row[k] is not None:
                    self.check_gradient(row[k], x)
                    matrix[:, j] = row[k].array.reshape(-1)
            matrices.append(matrix)
        return matrices

    def check_gradient(self, gradient: Any, x: Tensor) -> None:
        if gradient.shape != x.shape:
            raise GradcheckError("Analytical gradient has incorrect size")
        if gradient.dtype != x.dtype and self.options.check_grad_dtypes:
            raise GradcheckError("Gradient has dtype mismatch")

    def twice(self, compute: Callable[..., list[Array]], *args: object) -> list[Array]:
        """Return the result of `compute`, which must be equal at a second call."""
        first, second = compute(*args), compute(*args)
        tolerance = self.options.nondet_tol
        for a, b in zip(first, second):
            if not np.array_equal(a, b, equal_nan=True) and not np.abs(a - b).max() <= tolerance:
                raise GradcheckError(
                    "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times "
                    "gives different values, although analytical gradient matches numerical gradient. The tolerance "
                    f"for nondeterminism was {tolerance}. If that is meant, give a larger nondet_tol."
                )
        return first

    # -- comparing -------------------------------------------------------------------------------------------------
    def compare(self, every: Sequence[Any], outputs: Sequence[Any]) -> None:
        tracked = [i for i, x in enumerate(every) if x.requires_grad]
        if self.options.fast_mode:
            self.compare_fast(tracked, outputs)
            return
        numerical = self.derivatives()
        for i, (position, out) in enumerate(zip(tracked, outputs)):
            for component in _components(out):
                analytical = self.twice(self.jacobians, out, component.seed)
                for j, a in enumerate(analytical):
                    n = numerical[j][position].of(component.extract)
                    if not self.close(a, n, self.options.atol):
                        raise GradcheckError(_mismatch(component, i, j, of_array(n), of_array(a)))

    def close(self, a: NDArray, n: Any, atol: float) -> bool:
        return np.allclose(a, n, rtol=self.options.rtol, atol=atol)

    def compare_fast(self, tracked: Sequence[int], outputs: Sequence[Tensor]) -> None:
        rng = np.random.default_rng(SEED)
        directions = [(unit(x, rng), unit(x, rng)) for x in self.wanted]
        weights = [unit(x, rng) for x in outputs]
        numerical = [
            along(self.arrays, x.array, direction, self.options.eps) for x, direction in zip(self.wanted, directions)
        ]
        for i, (position, out, v) in enumerate(zip(tracked, outputs, weights)):
            for component in _components(out):
                analytical = self.twice(self.combination, out, v * component.seed)
                for j, (gradient, u) in enumerate(zip(analytical, directions)):
                    a = _projected(gradient, u)
                    n = (numerical[j][position].of(component.extract) * v).sum()
                    # The tolerance allows an error of atol of the same sign in each element.
                    step_sum = u[0].sum() + (u[1].sum() if gradient.dtype.kind == "c" else 0.0)
                    if not self.close(a, n, self.options.atol * step_sum * v.sum()):
                        raise GradcheckError(
                            _mismatch(component, i, j, n, a) + self.elements(component, position, out, j)
                        )

    def elements(self, component: _OutputComponent, position: int, out: Tensor, j: int) -> str:
        """Describe the result of the full check for the pair that differed in fast mode."""
        numerical = self.derivatives()[j][position].of(component.extract)
        analytical = self.jacobians(out, component.seed)[j]
        text = (
            "\nThe above quantities relating the numerical and analytical jacobians are computed \n"
            "in fast mode. Below, we recompute numerical and analytical jacobians in slow mode:\n\n"
            f"Numerical:\n {of_array(numerical)}\nAnalytical:\n{of_array(analytical)}\n\n"
            f"The max per-element difference (slow mode) is: {np.abs(numerical - analytical).max()}.\n"
        )
        if self.close(analytical, numerical, self.options.atol):
            text += (
                "\nFast gradcheck failed but element-wise differences are small. This means that the test might've "
                "passed in slow_mode: call gradcheck with fast_mode=False."
            )
        return text

    def is_constant(self) -> bool:
        """Whether no output requires grad; GradcheckError if an output nevertheless depends on the inputs."""
        if differentiable(outputs_of(self.func, self.inputs)):
            return False
        for derivatives in self.derivatives():
            if any(x.of(component.extract).any() for x in derivatives for component in _BOTH):
                raise GradcheckError("Numerical gradient for function expected to be zero")
        return True

    def compare_batched(self, i: int, out: Any) -> None:
        rng = np.random.default_rng(SEED)
        cts = np.stack([random_cotangent(out, rng, False).array for _ in range(2)])
        rows = [self.pull(out, ct) for ct in cts]
        try:
            weights = of_array(cts)
            batched = engine.grad(
                out, self.wanted, weights, retain_graph=True, allow_unused=True, is_grads_batched=True
            )
        except RuntimeError as error:
            raise GradcheckError(f"While computing batched gradients, got: {error}") from error
        for k, (x, actual) in enumerate(zip(self.wanted, batched)):
            expected = np.stack([np.zeros(x.shape, x.dtype) if row[k] is None else row[k].array for row in rows])
            if not np.allclose(expected if actual is None else actual.array, expected):
                if actual is None:
                    actual = of_array(np.zeros_like(expected))
                raise GradcheckError(
                    f"For output {i} and input {k}:\n\ngradcheck or gradgradcheck failed while testing batched "
                    f"gradient computation.\n\nGot:\n{actual}\n\nExpected:\n{of_array(expected)}"
                )

    def expect_zero(self, outputs: Sequence[Tensor]) -> None:
        """Check that cotangents of zero give gradients of zero."""
        if not outputs:
            return
        zeros = [of_array(np.zeros(x.shape, x.dtype)) for x in outputs]
        result = engine.grad(outputs, self.wanted, zeros, allow_unused=True)
        for gradient, x in zip(result, self.wanted):
            if gradient is None:
                continue
            array = gradient.array
            if not (np.allclose(array, 0.0) if self.options.masked else not array.any()):
                raise GradcheckError("backward not multiplied by grad_output")
            if array.shape != x.shape:
                raise GradcheckError("grad is incorrect size")

    def expect_zero_of_nothing(self) -> None:
        """Check that absent cotangents, all or one of several, count as zero."""
        count = len(differentiable(outputs_of(self.func, self.inputs)))
        for absent in (None, *range(count if count > 1 else 0)):
            try:
                result = self.without(absent)
            except (RuntimeError, TypeError, AttributeError, ValueError) as error:
                raise GradcheckError(
                    "Expected backward function to handle undefined output grads: a cotangent of None stands for zeros."
                ) from error
            if any(ct is not None and np.any(np.asarray(unmasked(ct))) for ct in result):
                raise GradcheckError(
                    "Expected all input grads to be undefined or zero when all output grads are undefined or zero."
                )

    def without(self, absent: int | None) -> list[Any]:
        """Compute the gradients with cotangent number `absent` absent and the others zero.

        If `absent` is None, all cotangents are. The backward pass skips nodes without cotangents, so each node with
        several outputs is called directly; the results of these calls are returned.
        """
        outputs = differentiable(outputs_of(self.func, self.inputs))
        if absent is None:
            nodes = {x.grad_fn for x in outputs}
            return [ct for n in nodes if n is not None and n.is_multi_result for ct in n.pull((None,) * n.count, False)]
        zeros = [(x._edge_of(), np.zeros(x.shape, x.dtype)) for k, x in enumerate(outputs) if k != absent]
        _, result = engine.run(zeros, False, False, [engine.edge_of(x) for x in self.wanted])
        return result


def _components(out: Tensor) -> tuple[_OutputComponent, ...]:
    return _BOTH if out.dtype.kind == "c" else _REAL


def _mismatch(component: _OutputComponent, i: int, j: int, numerical: object, analytical: object) -> str:
    return (
        f"{component.message_prefix}Jacobian mismatch for output {i} with respect to input {j},\n"
        f"numerical:{numerical}\nanalytical:{analytical}\n"
    )


def unit(x: Tensor, rng: np.random.Generator) -> Array:
    """Make a random unit vector with as many elements as `x`; none is negative, so that errors do not cancel."""
    vector: Array = rng.uniform(size=x.numel())
    vector /= np.sqrt(vector @ vector) or 1.0
    return vector


def _projected(gradient: Array, direction: tuple[Array, Array]) -> Any:
    u, v = direction
    return gradient.real @ u + 1j * (gradient.imag @ v) if gradient.dtype.kind == "c" else gradient @ u
