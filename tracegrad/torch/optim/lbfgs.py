"""Optimizer LBFGS: quasi-Newton steps, with a closure that is called several times in each step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tracegrad.errors import located
from tracegrad.ops import DispatchLevel
from tracegrad.torch.modes import enable_grad
from tracegrad.torch.optim.docs import OPTIM_DOCS
from tracegrad.torch.optim.line_search import LinePoint, search
from tracegrad.torch.optim.optimizer import Optimizer
from tracegrad.torch.tape import Tensor
from tracegrad.torch.tape.tensors.factories import from_numpy
from tracegrad.typing import NDArray

__all__ = ["LBFGS"]

Array = NDArray
_LEAST_CURVATURE = 1e-10


class LBFGS(Optimizer):
    """Limited-memory method of Broyden, Fletcher, Goldfarb and Shanno, as in PyTorch.

    `step(closure)` calls the closure, which zeros the gradients, computes the loss and calls `backward`. There is one
    parameter group. The steps themselves run in NumPy; the closure should be compiled. After an error in the closure,
    the parameters are those before the step.

    ValueError for several groups and hyperparameters out of range, RuntimeError for an unknown line search. A traced
    function that calls `step` runs as plain Python, with a warning.

    >>> from tracegrad import tensor
    >>> w = tensor([-1.0, 2.0], requires_grad=True)
    >>> lbfgs = LBFGS([w], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     lbfgs.zero_grad()
    ...     loss = (1 - w[0]) ** 2 + 100 * (w[1] - w[0] ** 2) ** 2
    ...     loss.backward()
    ...     return loss
    >>> for _ in range(3):
    ...     loss = lbfgs.step(closure)
    >>> w
    tensor([1.0000, 1.0000], requires_grad=True)
    """

    def __init__(
        self,
        params: Iterable[object],
        lr: Tensor | float = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ):
        if not lr >= 0.0:
            raise ValueError(located(f"Invalid learning rate: {lr}"))
        if line_search_fn not in (None, "strong_wolfe"):
            raise RuntimeError(located(f"only 'strong_wolfe' is supported as line_search_fn, not {line_search_fn!r}"))
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError(located("LBFGS doesn't support per-parameter options (parameter groups)"))

    def step(self, closure: Callable[[], object] | None = None) -> object:
        """Run iterations, for which the `closure` computes losses and gradients; return the first loss."""
        group, params = self.param_groups[0], self.param_groups[0]["params"]
        if closure is None:
            raise TypeError(located("LBFGS.step needs a closure that computes the loss and its gradients again"))
        for p in params:
            if p.level is not DispatchLevel.TENSOR:
                raise p.array.builder.abort(
                    "LBFGS.step in it calls the closure as often as the losses require; trace the closure instead"
                )
        before = [p.array.copy() for p in params]
        iterations = _LBFGSIterations(params, group, self.state.get(params[0]) or {}, closure)
        try:
            first = iterations.run()
        except BaseException:
            for p, x in zip(params, before):
                _write(p, x)
            raise
        self.state[params[0]] = iterations.state()
        return first


def _write(p: Tensor, x: Array) -> None:
    p.data.copy_(from_numpy(x))


class _LBFGSIterations:
    """The iterations of one step, on vectors of all parameters."""

    def __init__(self, params: list[Tensor], group: dict[str, Any], state: dict[str, Any], closure: Callable[[], Any]):
        self._params, self._group, self._closure = params, group, closure
        self._sizes = np.cumsum([p.numel() * (2 if p.dtype.kind == "c" else 1) for p in params])[:-1]
        self.evaluations, self.iterations = state.get("func_evals", 0), state.get("n_iter", 0)
        self.direction, self.t = _array(state.get("d")), _number(state.get("t", 0.0))
        self.differences = [_array(x) for x in state.get("old_dirs", ())]
        self.moves = [_array(x) for x in state.get("old_stps", ())]
        self.inverses = [float(x) for x in state.get("ro", ())]
        self.scale = _number(state.get("H_diag", 1))
        self.previous, self.previous_loss = _array(state.get("prev_flat_grad")), _number(state.get("prev_loss", 0.0))
        self.products: list[Any] = list(state.get("al", ()))

    def state(self) -> dict[str, Any]:
        """Return the state from which the next step continues, by PyTorch's names."""
        table: dict[str, Any] = {"func_evals": self.evaluations, "n_iter": self.iterations}
        if self.direction is None:
            return table
        table |= {"al": self.products} if self.products else {}
        table |= {"d": from_numpy(self.direction), "t": self.t}
        table |= {
            "old_dirs": [from_numpy(x) for x in self.differences],
            "old_stps": [from_numpy(x) for x in self.moves],
        }
        table |= {"ro": self.inverses, "H_diag": self.scale, "prev_flat_grad": from_numpy(self.previous)}
        return table | {"prev_loss": self.previous_loss}

    def run(self) -> object:
        """Run all iterations; return the loss before them."""
        group = self._group
        first, loss, gradient = self._evaluated()
        if _greatest(gradient) <= group["tolerance_grad"]:
            return first
        evaluations = 1
        for n in range(1, group["max_iter"] + 1):
            self.iterations += 1
            self._iteration(gradient)
            self.previous, self.previous_loss = gradient.copy(), loss
            rate = group["lr"].item() if isinstance(group["lr"], Tensor) else group["lr"]
            self.t = min(1.0, 1.0 / float(np.abs(gradient).sum())) * rate if self.iterations == 1 else rate
            derivative = float(gradient @ self.direction)
            if derivative > -group["tolerance_change"]:
                break
            max_evals = group["max_eval"] - evaluations
            loss, gradient, evaluated = self._move(
                LinePoint(0.0, loss, gradient, derivative), n == group["max_iter"], max_evals
            )
            evaluations += evaluated
            if n == group["max_iter"] or evaluations >= group["max_eval"] or self._rests(gradient, loss):
                break
        return first

    def _rests(self, gradient: Array, loss: float) -> bool:
        change = self._group["tolerance_change"]
        if _greatest(gradient) <= self._group["tolerance_grad"] or _greatest(self.direction * self.t) <= change:
            return True
        return bool(abs(loss - self.previous_loss) < change)

    def _iteration(self, gradient: Array) -> None:
        """Compute the next direction: the negative gradient, times the approximate inverse Hessian."""
        if self.iterations == 1:
            self.direction, self.scale = -gradient, 1
            self.differences, self.moves, self.inverses = [], [], []
            return
        difference, move = gradient - self.previous, self.direction * self.t
        curvature = float(difference @ move)
        if curvature > _LEAST_CURVATURE:
            self.differences.append(difference)
            self.moves.append(move)
            self.inverses.append(1.0 / curvature)
            for history in (self.differences, self.moves, self.inverses):
                del history[: -self._group["history_size"]]
            self.scale = curvature / float(difference @ difference)
        self._project(gradient)

    def _project(self, gradient: Array) -> None:
        past = list(zip(self.differences, self.moves, self.inverses))
        rest, weights = -gradient, []
        for difference, move, inverse in reversed(past):
            weight = float(move @ rest) * inverse
            weights.append(weight)
            rest = rest - difference * weight
        result = rest * self.scale
        for (difference, move, inverse), weight in zip(past, reversed(weights)):
            result = result + move * (weight - float(difference @ result) * inverse)
        self.direction = result
        size = self._group["history_size"]
        self.products = ([*reversed(weights)] + [None] * size)[:size]

    def _move(self, start: LinePoint, last: bool, max_evals: int) -> tuple[float, Array, int]:
        """Move along the direction; return the loss and gradient there, and the number of evaluations.

        A line search makes at most `max_evals` evaluations after the first.
        """
        origins = [p.array.copy() for p in self._params]
        if self._group["line_search_fn"] is None:
            self._set_params(origins, self.t)
            if last:  # a new loss and gradient would be unused
                return start.loss, start.gradient, 0
            _, loss, gradient = self._evaluated()
            return loss, gradient, 1

        def at(t: float) -> LinePoint:
            self._set_params(origins, t)
            _, loss, gradient = self._evaluated()
            return LinePoint(t, loss, gradient, float(gradient @ self.direction))

        longest = _greatest(self.direction)
        result, evaluations = search(at, start, self.t, longest, max_evals)
        self.t = result.t
        self._set_params(origins, self.t)
        return result.loss, result.gradient, evaluations

    def _set_params(self, origins: list[Array], t: float) -> None:
        """Set the parameters to their values before the move plus `t` times the direction."""
        for p, x, d in zip(self._params, origins, np.split(self.direction, self._sizes)):
            d = d.view(p.dtype) if p.dtype.kind == "c" else d
            _write(p, x + d.reshape(x.shape).astype(x.dtype) * x.dtype.type(t))

    def _evaluated(self) -> tuple[Any, float, Array]:
        """Call the closure; return its result, the loss as a number, and the gradient."""
        with enable_grad():
            loss = self._closure()
        self.evaluations += 1
        gradients = [np.zeros(p.shape, p.dtype) if p.grad is None else p.grad.detach().numpy() for p in self._params]
        flat = [x.ravel().view(x.real.dtype) if x.dtype.kind == "c" else x.ravel() for x in gradients]
        return loss, float(loss.detach() if isinstance(loss, Tensor) else loss), np.concatenate(flat)


def _number(x: Any) -> Any:
    return x.item() if hasattr(x, "item") else x


def _array(x: Any) -> Any:
    return x if x is None else np.asarray(x.detach() if hasattr(x, "detach") else x)


def _greatest(x: Array) -> float:
    return float(np.abs(x).max())


OPTIM_DOCS.document(globals(), __all__)
