"""Comparison of `gradcheck(check_forward_ad=True)`: forward-mode tangents against central differences.

For each input that requires grad, the function is called on dual Tensors once for each element; imaginary parts of
complex inputs are separate directions. The fast mode compares the derivative along one random direction instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.torch.autograd.finite_differences import along
from tracegrad.torch.autograd.forward_ad import dual_level, make_dual, unpack_dual
from tracegrad.torch.autograd.gradcheck_compare import SEED, BackwardCheck, GradcheckError, outputs_of, requires, unit
from tracegrad.torch.tape.tensors.tensor import of_array
from tracegrad.typing import NDArray

__all__ = ["ForwardCheck"]

Array = NDArray


class ForwardCheck:
    """The check of the tangents of one function at one point."""

    def __init__(self, check: BackwardCheck):
        self.check, self.options = check, check.options
        self.tracked = [i for i, x in enumerate(outputs_of(check.func, check.inputs)) if x.requires_grad]

    def run(self) -> None:
        compare = self.compare_fast if self.options.fast_mode else self.compare
        if any(x.dtype.kind == "c" for x in self.check.wanted):
            compare(1j, "While considering the imaginary part of complex inputs only, ")
            compare(1.0, "While considering the real part of complex inputs only, ")
        else:
            compare(1.0, "")
        if self.options.check_undefined_grad:
            self.expect_zero_of_nothing()

    def pushed(self, tangents: Sequence[Any]) -> list[Any]:
        """Compute the tangents of the outputs (None: zero) from tangents of the inputs (None: not dual)."""
        with dual_level():
            supply = iter(tangents)
            args = []
            for x in self.check.inputs:
                t = next(supply) if requires(x) else None
                plain = x.detach() if requires(x) else x
                args.append(plain if t is None else make_dual(plain, of_array(np.array(t))))
            results = [unpack_dual(y) for y in outputs_of(self.check.func, args)]
            return [None if t is None else np.array(t.array) for _, t in results]

    def moved(self, j: int, direction: Array) -> list[Array]:
        """Compute the derivatives of the compared outputs along `direction` of input `j`, flat."""
        zero = [np.zeros(x.shape, x.dtype) for x in self.check.wanted]
        zero[j] = direction.reshape(zero[j].shape).astype(zero[j].dtype)
        result = self.pushed(zero)
        outputs = outputs_of(self.check.func, self.check.inputs)
        return [
            np.zeros(outputs[i].numel(), outputs[i].dtype) if result[i] is None else result[i].reshape(-1)
            for i in self.tracked
        ]

    def columns(self, j: int, seed: complex) -> list[Array]:
        """Compute, for each output, the derivatives along the elements of input `j`, as a matrix."""
        x = self.check.wanted[j]
        rows = [self.moved(j, e * seed) for e in np.eye(x.numel())]
        return [np.stack(column) for column in zip(*rows)] if rows else []

    def compare(self, seed: complex, message_prefix: str) -> None:
        numerical = self.check.derivatives()
        for j, x in enumerate(self.check.wanted):
            if seed == 1j and x.dtype.kind != "c":
                continue
            for i, (position, a) in enumerate(zip(self.tracked, self.columns(j, seed))):
                derivatives = numerical[j][position]
                n = derivatives.imaginary if seed == 1j else derivatives.real
                if not self.check.close(a, n, self.options.atol):
                    raise GradcheckError(_mismatch(message_prefix, i, j, of_array(n), of_array(a)))

    def compare_fast(self, seed: complex, message_prefix: str) -> None:
        rng = np.random.default_rng(SEED)
        outputs = outputs_of(self.check.func, self.check.inputs)
        weights = [unit(outputs[i], rng) for i in self.tracked]
        for j, x in enumerate(self.check.wanted):
            if seed == 1j and x.dtype.kind != "c":
                continue
            u = unit(x, rng)
            derivatives = along(self.check.arrays, x.array, (u, u), self.options.eps)
            for i, (position, moved, v) in enumerate(zip(self.tracked, self.moved(j, u * seed), weights)):
                derivative = derivatives[position].imaginary if seed == 1j else derivatives[position].real
                a, n = (moved * v).sum(), (derivative * v).sum()
                # The tolerance allows an error of atol of the same sign in each element.
                if not self.check.close(a, n, self.options.atol * u.sum() * v.sum()):
                    raise GradcheckError(_mismatch(message_prefix, i, j, n, a))

    def expect_zero_of_nothing(self) -> None:
        """Check that an absent tangent counts as zero, for any tangents of the other inputs."""
        rng = np.random.default_rng(SEED)
        full = [unit(x, rng).reshape(x.shape).astype(x.dtype) for x in self.check.wanted]
        for j, x in enumerate(self.check.wanted):
            zeros = self.pushed([np.zeros_like(t) if k == j else t for k, t in enumerate(full)])
            absent = self.pushed([None if k == j else t for k, t in enumerate(full)])
            for k, (a, b) in enumerate(zip(zeros, absent)):
                if a is not None and b is not None and not np.allclose(a, b):
                    raise GradcheckError(
                        f"Mismatch in tangent values for output with index: {k} when input: {x} has an undefined "
                        f"tangent value. Got: {of_array(a)} but expected: {of_array(b)}"
                    )


def _mismatch(message_prefix: str, i: int, j: int, numerical: object, analytical: object) -> str:
    return (
        f"{message_prefix}Jacobian computed with forward mode mismatch for output {i} with respect to input {j},\n"
        f"numerical:{numerical}\nanalytical:{analytical}\n"
    )
