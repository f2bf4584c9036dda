"""Generate the fast path for calls on Tensors: read their arrays, and record one node on the tape.

It serves calls in the usual mode, except calls on Tensors that are neither leaves nor results of recorded operations,
for example views. It records what `OnTape.finish` records, with the same checks of updates in place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from operator import setitem
from typing import Any

from numpy.linalg import LinAlgError

from tracegrad.runtime.dispatch.compiled_backward import CompiledBackward, OnTape, Spent, tensor_of
from tracegrad.runtime.dispatch.fast_path_code import FastPathCode, NotSimple, Then
from tracegrad.torch.functions.linalg.matrix_errors import of_tensors
from tracegrad.torch.modes import STATE
from tracegrad.torch.tape.tensors import inplace_updates
from tracegrad.trace.effects.effects import Effect
from tracegrad.trace.effects.result_template import TensorOutput
from tracegrad.trace.sources.signature import BoundCall
from tracegrad.trace.sources.sources import ArgumentLeaf, Source


class TensorCode(FastPathCode):
    """The source text of a fast path for calls on Tensors."""

    trouble = ("STATE.unusual",)

    def __init__(self, program: Any, args: Sequence[str], kwargs: Mapping[str, str], on_tape: OnTape):
        super().__init__(program, args, kwargs)
        self.on_tape = on_tape
        self.objects |= {"STATE": STATE, "tensor": tensor_of, "record": CompiledBackward, "tape": on_tape}
        self.objects |= {"LinAlgError": LinAlgError, "of_tensors": of_tensors}
        self.objects |= {"spent": Spent, "check": inplace_updates.check, "check_all": inplace_updates.check_all}
        self._tensors: dict[int, str] = {}
        self._leaves: list[str] = []  # the leaves of the call, with the arrays of Tensors

    def name(self, x: Any) -> str:
        if isinstance(x, ArgumentLeaf) and int(x.name) in self._tensors:
            return self._tensors[int(x.name)]
        return super().name(x)

    def prepare(self, call: BoundCall) -> None:
        """Write the checks of Tensors, and local names for their arrays."""
        self.used.update(range(len(self.leaves)))  # all containers are unpacked here
        for i in call.tensors:
            cls, _, _, requires, leaf = call.key[1][i]
            text = again = self.leaves[i]
            if not text.isidentifier():
                again = f"tensor_{i}"
                text = f"({again} := {text})"
            self._tensors[i] = again
            self.checks.append(f"type({text}) is {self.name(cls)}")
            self.checks += _state(again, call.tensors[i], requires, leaf)
            self.checks.append(Then(f"array_{i} = {again}.array"))
            self.leaves[i] = f"array_{i}"
        self._leaves = list(self.leaves)
        self.objects["like"] = replace(call, leaves=[], key=None, carriers=[], tensors={}, args=(), kwargs={})

    def captured(self, texts: list[str]) -> list[str]:
        names = [f"captured_{i}" for i in range(len(texts))]
        self.checks += [Then(f"{name} = {text}") for name, text in zip(names, texts)]
        return names

    def entering(self, entry: str) -> list[str]:
        return [f"    try: outputs = {entry}", "    except LinAlgError as error: raise of_tensors(error) from None"]

    def recorded(self, captured: Sequence[str]) -> list[str]:
        updated = [e for e in self.on_tape.trace.effects if e.recorded is not None]
        checks = [f"    check({self.checked_text(e.holder)}, True)" for e in updated if e.recorded]
        plain = "".join([f"{self.checked_text(e.holder)}, " for e in updated if not e.recorded])
        return [f"    node = {self._node(captured)}", *checks, *[f"    check_all(({plain}))"] * bool(plain)]

    def overwrites(self, effect: Effect) -> bool:
        return effect.recorded is False

    def overwritten(self, effects: Sequence[Effect]) -> list[str]:
        if not effects:
            return []
        # All items in one call of C code, so that no signal handler runs in between.
        self.objects |= {"put": deque[None](maxlen=0).extend, "setitem": setitem, "all": repeat(...)}
        holders = [self.checked_text(effect.holder) for effect in effects]
        arrays = "".join([f"{holder}.array, " for holder in holders])
        positions = [effect.template.position for effect in effects if isinstance(effect.template, TensorOutput)]
        values = "".join([f"{self.output(position)}, " for position in positions])
        counts = [f"{holder}._counter[0] += {effect.key}" for holder, effect in zip(holders, effects)]
        return [*counts, f"put(map(setitem, ({arrays}), all, ({values})))"]

    def _node(self, captured: Sequence[str]) -> str:
        """The expression of the node that a call records."""
        tape = self.on_tape.tape
        edges = "".join([f"{self._edge(source)}, " for source in tape.wanted])
        if tape.joint is None:
            result = f"spent({tape.spent!r}, ({edges}))"
            return f"{result} if STATE.enabled else None" if tape.roots and tape.spent else "None"
        inputs = ", ".join([*self._leaves, *captured])
        tensors = ", ".join([f"{i}: {text}" for i, text in self._tensors.items()])
        watched = "".join([f"{self._read_text(source)}, " for source, _ in tape.outside_tensors])
        saved = (
            f"outputs[{len(self.on_tape.graph.outputs) - self.on_tape.num_residuals} :]"
            if self.on_tape.num_residuals
            else "()"
        )
        like = "like"
        if self.draws:
            self.objects["replace"] = replace
            like = "replace(like, drawn=drawn)"
        result = f"record(tape, {like}, [{inputs}], {{{tensors}}}, ({edges}), ({watched}), {saved}, self)"
        return f"{result} if STATE.enabled else None"

    def _read_text(self, source: Source) -> str:
        return self.name(source) if isinstance(source, ArgumentLeaf) else self.again(self.read(source))

    def _edge(self, source: Source) -> str:
        text = self._read_text(source)
        return f"({text}._edge or {text}._source())" if isinstance(source, ArgumentLeaf) else f"{text}._edge_of()"


def _state(text: str, tensor: Any, requires: bool, leaf: bool) -> list[str]:
    """The checks that a Tensor requires grad, and is a leaf, as the one in the trace."""
    if not requires:
        return [f"not ({text}._requires or {text}._base is not None and {text}._base._requires)"]
    if not tensor._requires:  # the base of this view requires grad
        raise NotSimple
    return [f"{text}._requires", f"{text}._edge is None" if leaf else f"{text}._edge"]
