"""The node of one op: it saves what the derivative rules of the op read, and applies them.

The backward pass on ndarrays applies rules of elementwise ops as plain NumPy functions (`pullbacks`); everything else,
and everything recorded, goes through the ops. What is saved is checked to be unchanged by version counters: a list of
one number for each memory, which every update in place increments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tracegrad import ad
from tracegrad.errors import located
from tracegrad.ops import TABLE
from tracegrad.ops.declare import Elementwise
from tracegrad.ops.elementwise import divide, power, where
from tracegrad.ops.linear import broadcast_to, full, in_dtype, reduce_sum, reshape
from tracegrad.ops.op import Carrier, Op
from tracegrad.torch.tape.names import node_name, saved_names, saved_options
from tracegrad.torch.tape.packing import Packed, PackedValue, RawSaved, unpacked
from tracegrad.torch.tape.pullbacks import needs_of, numpy_rules
from tracegrad.torch.tape.tape import RELEASED, Masked, Node, Spec, next_number, rewrap, unmasked

__all__ = [
    "OpNode", "Plan", "made_by", "modified", "modified_error", "node_class", "of_inference", "plan_of",
    "rewrap", "short_name", "step_node", "summed_to",
]  # fmt: skip

_ndarray = np.ndarray
_NO_RULES: tuple[Any, ...] = ()


class OpNode(Node):
    """One op: `operands` are arrays, Python numbers, and None or a `Spec` where nothing was saved; `answer` likewise.

    `checks`: a version counter, the version saved and the position of the operand (-1: the answer), for each value
    that was saved; None if nothing was. `shapes`: for an elementwise op that broadcasts or promotes, the `Spec` of each
    operand.
    """

    __slots__ = ("answer", "checks", "op", "operands", "params", "shapes")
    op: Op
    operands: Any
    params: dict[str, Any]
    answer: Any
    checks: Any
    shapes: Any

    def pull(self, ct: Any, recording: bool) -> Sequence[Any]:
        operands, answer = self.operands, self.answer
        checks = self.checks
        if checks is not None:
            if operands.__class__ is not tuple:
                operands, answer = unpacked(operands)
            for counter, version, position in checks:
                if counter[0] != version:
                    raise modified(self, position, counter, version)
            if answer is None and self.op is divide and self.edges[1]:
                answer = divide(*operands)
        if recording:
            operands, answer = self._recorded(operands, answer)
        elif isinstance(self.op, Elementwise) and (ct.__class__ is _ndarray or isinstance(ct, np.generic)):
            rules = self._rules(operands)
            if rules and answer.__class__ is not Spec and ct.dtype.kind != "c":
                return self._computed(rules, ct, answer, operands)
        found = [self._pulled(i, ct, answer, operands) if e else None for i, e in enumerate(self.edges)]
        if recording and self.op in _PIECEWISE:
            return [_tied(ct_x, operands[0] if hasattr(operands[0], "_edge") else answer) for ct_x in found]
        return found

    def _rules(self, operands: tuple[Any, ...]) -> Any:
        """The rules as NumPy functions, if there are such; not of `where`, whose cotangents get masks."""
        op = self.op
        key: Any = op
        for k, x in enumerate(operands):
            kind = x.__class__
            if kind is float or kind is int or kind is bool:
                # Equal numbers have equal rules; but 0.0 equals -0.0, and nan equals nothing.
                key = (key, k, kind, x if x and x == x else repr(x))
        rules = _RULES.get(key, _NO_RULES)
        if rules is _NO_RULES:
            literals = [(k, repr(v)) for k, v in enumerate(operands) if type(v) in (float, int, bool)]
            rules = None if op is where else numpy_rules(op, tuple(literals))
            if len(_RULES) < _MOST_RULES:
                _RULES[key] = rules
        return rules

    def _computed(self, rules: Any, ct: Any, answer: Any, operands: tuple[Any, ...]) -> list[Any]:
        found: list[Any] = []
        shapes = self.shapes
        for i, e in enumerate(self.edges):
            if not e:
                found.append(None)
            elif (rule := rules[i]) is False:
                found.append(self._pulled(i, ct, answer, operands))
            else:
                ct_x = rule(ct, answer, *operands)
                found.append(ct_x if shapes is None else summed_to(ct_x, shapes[i]))
        return found

    def _pulled(self, i: int, ct: Any, answer: Any, operands: tuple[Any, ...]) -> Any:
        """The cotangent of operand `i` by the rule of the op."""
        mask = None
        if ct.__class__ is Masked:
            ct, mask = ct.ct, ct.mask
        ct_x, mask = ad.pull_masked(self.op, i, ct, mask, answer, operands, self.params)
        if ct_x is None:
            return None
        if self.shapes is not None:
            spec = self.shapes[i]
            if mask is not None and mask.shape != ct_x.shape:
                mask = broadcast_to(mask, shape=ct_x.shape)
            if mask is not None and mask.shape != spec.shape:
                mask = ad.mask_of_repeated(mask, spec.shape)
            ct_x = summed_to(ct_x, spec)
        return ct_x if mask is None else Masked(ct_x, mask)

    def _recorded(self, operands: tuple[Any, ...], answer: Any) -> tuple[tuple[Any, ...], Any]:
        """What was saved, as Tensors on the tape."""
        arrays = tuple([rewrap(x, e) for x, e in zip(operands, self.edges)])
        if self.op is divide and self.edges[1]:
            return arrays, divide(*arrays)
        return arrays, rewrap(answer, self)

    def release(self) -> None:
        if self.checks is not None:
            self.operands, self.answer, self.checks = RELEASED, RELEASED, ()

    def pack(self, pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> None:
        if self.checks is None:
            return
        values = zip((*self.operands, self.answer), (*self.edges, None))
        self.operands = Packed(
            tuple(
                [
                    PackedValue(x, e, pack, unpack) if hasattr(x, "dtype") and x.__class__ is not Spec else x
                    for x, e in values
                ]
            )
        )
        self.answer, self.checks = None, ()

    def protect(self, x: Any) -> None:
        array = x.array
        if self.operands.__class__ is Packed:
            self.operands.protect(array)
        if self.operands.__class__ is not tuple or self.checks is None:
            return
        if isinstance(array, np.ndarray):
            safe = {k for k, v in enumerate(self.operands) if v is array}
            kept = array.copy() if safe else None
            self.operands = tuple([kept if k in safe else v for k, v in enumerate(self.operands)])
        else:  # what a trace saves stays as it is
            safe = {c[2] for c in self.checks if c[0] is x._counter}
        self.checks = [c for c in self.checks if c[2] not in safe]

    def settle(self, old: Any, tensor: Any) -> None:
        if self.answer is old:
            self.answer = tensor.array
            others = [c for c in self.checks or () if c[2] >= 0]
            self.checks = (*others, (tensor._counter, tensor._counter[0], -1))

    # -- saved values ------------------------------------------------------------------------------------------
    def _attributes(self) -> dict[str, Any]:
        """What is known under which name: a position (-1: the answer), or an option in a tuple."""
        operands, answer = self._values()
        names = saved_names(self.name(), len(operands))
        found: dict[str, Any] = {f"_saved_{n}": k if _is_shown(operands[k]) else (None,) for k, n in enumerate(names)}
        if _is_shown(answer):
            found["_saved_result"] = -1
        shapes = [getattr(x, "shape", ()) for x in (operands[0] if operands else None, answer)]
        options = saved_options(self.name(), self.params, *shapes)
        return {**found, **{f"_saved_{k}": (v,) for k, v in options.items()}}

    def _values(self) -> tuple[tuple[Any, ...], Any]:
        """The operands and the answer, unpacked and found to be as they were."""
        operands, answer = self.operands, self.answer
        if operands.__class__ is not tuple:
            operands, answer = unpacked(operands)
        for counter, version, position in self.checks or ():
            if counter[0] != version:
                raise modified(self, position, counter, version)
        return operands, answer

    def __dir__(self) -> list[str]:
        known = {} if self.operands is RELEASED else self._attributes()
        return [*super().__dir__(), *(name for name, found in known.items() if found != (None,))]

    def __getattr__(self, name: str) -> Any:
        raw = name.startswith("_raw_saved_")
        known = self._attributes() if raw or name.startswith("_saved_") else {}
        found = known.get(name.removeprefix("_raw"))
        if found is None:
            raise AttributeError(f"'{self.name()}' object has no attribute {name!r}")
        if raw:
            return RawSaved(self, found)
        if type(found) is tuple:
            return found[0]
        operands, answer = self._values()
        return rewrap(answer, self) if found < 0 else rewrap(operands[found], self.edges[found])


def _is_shown(x: Any) -> bool:
    return x is not None and x.__class__ is not Spec


_RULES: dict[Any, Any] = {}
_MOST_RULES = 4096


class Plan(NamedTuple):
    """How to record an op: the class of its node, whether the answer is saved, which operands are, and if any is."""

    cls: type[OpNode]
    answer: bool
    operands: tuple[bool, ...]
    saves: bool


@lru_cache(maxsize=8192)
def plan_of(op: Op, kinds: tuple[int, ...]) -> Plan:
    """`kinds`: for each operand 0 for a number, 1 for an array, 2 for an array that requires grad."""
    literals = tuple([k for k, kind in enumerate(kinds) if kind == 0])
    answer, operands = False, set[int]()
    for i, kind in enumerate(kinds):
        if kind == 2:
            needs = needs_of(op, i, literals)
            answer, operands = answer or needs.answer, operands | needs.operands
    if op is divide and answer:
        # PyTorch saves both operands, so the quotient may be updated in place.
        answer, operands = False, {0, 1}
    if op is power and literals == (0,):
        operands.add(1)
    flags = tuple([k in operands for k in range(len(kinds))])
    return Plan(node_class(op), answer, flags, answer or any(flags))


_CLASSES: dict[str, type[OpNode]] = {}


def node_class(op: Op | str) -> type[OpNode]:
    """The class of the nodes of `op`, or of those called so."""
    name = op if isinstance(op, str) else node_name(op)
    found = _CLASSES.get(name)
    if found is None:
        found = _CLASSES[name] = type(name, (OpNode,), {"__slots__": ()})
    return found


class StepNode(Node):
    """An op that is constant but for steps, as to its derivative: zeros."""

    __slots__ = ("spec",)
    spec: Spec

    def pull(self, ct: Any, recording: bool) -> Sequence[Any]:
        zeros = full(shape=self.spec.shape, value=0.0, dtype=self.spec.dtype.name)
        return [rewrap(zeros, None) if recording else zeros]


_STEPS: dict[Op, type[StepNode]] = {}


def step_node(op: Op, edge: Any, answer: Any) -> StepNode:
    """The node of an op whose derivative is 0."""
    cls = _STEPS.get(op)
    if cls is None:
        cls = _STEPS[op] = type(node_name(op), (StepNode,), {"__slots__": ()})
    node = cls()
    node.edges, node.hooks, node.number, node.spec = (edge,), None, next_number(), Spec(answer.shape, answer.dtype)
    return node


# Ops whose derivative depends on the operand by steps alone, but depends on it in PyTorch's eyes.
_PIECEWISE = frozenset({TABLE[name] for name in ("relu", "leaky_relu")})


def _tied(ct: Any, x: Any) -> Any:
    """The cotangent, which is to count as computed from the Tensor `x`."""
    if ct is None or not getattr(x, "_requires", False) or unmasked(ct)._requires:
        return ct
    plain = unmasked(ct)
    tied = rewrap(plain.array, step_node(TABLE["sign"], x._edge_of(), x))
    return Masked(tied, ct.mask) if ct.__class__ is Masked else tied


def summed_to(ct: Any, spec: Any) -> Any:
    """The cotangent of an operand of this shape and dtype, given that of what it was broadcast and promoted to."""
    shape = spec.shape
    if ct.shape != shape:
        new = len(ct.shape) - len(shape)
        axes = tuple([k for k, n in enumerate(ct.shape) if k < new or shape[k - new] != n])
        if isinstance(ct, Carrier):
            ct = reduce_sum(ct, axes=axes)
            ct = ct if ct.shape == shape else reshape(ct, shape=shape)
        else:
            ct = np.add.reduce(ct, axis=axes).reshape(shape)
    return ct if ct.dtype is spec.dtype or ct.dtype == spec.dtype else in_dtype(ct, spec.dtype)


_TYPES = {"float64": "Double", "float32": "Float", "complex128": "ComplexDouble", "complex64": "ComplexFloat",
          "int64": "Long", "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte"}  # fmt: skip


def of_inference() -> RuntimeError:
    """The error for an inference tensor that would have to be saved."""
    return RuntimeError(
        located(
            "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in "
            "computation tracked by autograd. To work around this, you can make a clone to get a normal tensor and use "
            "it in autograd, or use `no_grad()` instead of `inference_mode()`."
        )
    )


def modified(node: Any, position: int, counter: list[Any], version: int) -> RuntimeError:
    """The error for a saved value whose memory has been updated since; position -1 is the answer."""
    operands, answer = node.operands, node.answer
    if operands.__class__ is not tuple:
        operands, answer = unpacked(operands)
    if position < 0:
        return modified_error(answer, made_by(node), counter[0], version)
    return modified_error(operands[position], made_by(node.edges[position], counter), counter[0], version)


def made_by(edge: Any, counter: Any = ()) -> str:
    """Words on what made a saved value; of one that came from elsewhere, on the last update in place in its memory."""
    if len(counter) > 1:
        return f", which is output 0 of {counter[1]},"
    node, number = edge if type(edge) is tuple else (edge, 0)
    return f", which is output {number} of {short_name(node)}," if node and node.name() != "AccumulateGrad" else ""


def short_name(node: Any) -> str:
    """The name of a node in an error: that of the operation."""
    name: str = node.name().rstrip("0123456789")
    return name.removesuffix("Backward")


def modified_error(array: Any, made_by: str, found: int, expected: int) -> RuntimeError:
    """The error for a saved array at another version than expected."""
    name = array.dtype.name
    kind = "CPUBoolType" if name == "bool" else f"{_TYPES.get(name, name.capitalize())}Tensor"
    return RuntimeError(
        located(
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            f"[{kind} {list(array.shape)}]{made_by} is at version {found}; expected version {expected} instead. "
            "Hint: enable anomaly detection to find the operation that failed to compute its gradient, with "
            "autograd.set_detect_anomaly(True)."
        )
    )
