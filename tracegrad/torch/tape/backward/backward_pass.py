"""Backward pass: propagate cotangents along the tape, from node to node.

Nodes run in descending order of their numbers, and a leaf runs as soon as no more cotangents can arrive there. The
order is therefore PyTorch's, and deterministic. Gradients are written when all nodes have run: an exception in a rule
or a hook leaves the `grad` of every Tensor unchanged.

Without `create_graph`, cotangents are arrays and nothing is recorded; with it they are Tensors, and recorded.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import located, user_file
from tracegrad.ops.core.op import Carrier
from tracegrad.torch.functions.core.dims import type_name
from tracegrad.torch.modes import STATE
from tracegrad.torch.tape.recording.node import (
    AccumulateGrad,
    MaskedCotangent,
    Node,
    added,
    owned,
    rewrap,
    unmasked,
    writing,
)
from tracegrad.utils.errstate import QUIET, restore_traps, set_traps, traps

if TYPE_CHECKING:
    from tracegrad.typing import Array


_number = attrgetter("number")

Edge = tuple[Node, int]


class Sweep:
    """Active pass: the nodes to run, the cotangents that have arrived, and the gradients to write at the end."""

    # Functions to call when the gradients have been written.
    callbacks: tuple[Callable[[], object], ...] = ()
    # The node that runs, in anomaly detection.
    running: Node | None = None

    def __init__(self, create_graph: bool, retain_graph: bool):
        self.create_graph, self.retain_graph = create_graph, retain_graph
        self.arrived: dict[Node, Any] = {}
        # The number of cotangents that may still arrive at each leaf.
        self.waiting: dict[Node, int] = {}
        self.nodes: set[Node] = set()
        # The output numbers at which cotangents are wanted, the cotangents there, and the nodes to run (None: all).
        self.wanted: dict[Node, set[int]] = {}
        self.captured: dict[Edge, Any] = {}
        self.needed: set[Node] | None = None
        self.leaves: list[tuple[AccumulateGrad, Any]] = []
        self.retained: list[tuple[Any, Any]] = []
        # The ids of arrays that users may have a reference to.
        self.referenced: set[int] = set()
        self.watching = STATE.watching

    # -- which nodes ---------------------------------------------------------------------------------------------
    def reachable(self, roots: Sequence[Edge]) -> list[Node]:
        """Return the nodes that the roots lead to, latest first; leaves are counted instead."""
        stack = [node for node, _ in roots]
        seen = self.nodes
        nodes = []
        waiting = self.waiting
        while stack:
            node = stack.pop()
            if node.__class__ is AccumulateGrad:
                waiting[node] = waiting.get(node, 0) + 1
                continue
            if node in seen:
                continue
            seen.add(node)
            nodes.append(node)
            for e in node.edges:
                if e:
                    stack.append(e[0] if e.__class__ is tuple else e)
        nodes.sort(key=_number, reverse=True)
        return nodes

    def restrict(self, nodes: list[Node], wanted: Sequence[Edge], accumulate: bool) -> None:
        """Run only the nodes from which a wanted edge can be reached.

        With `accumulate`, which adds cotangents to `grad`, the nodes of wanted edges run as well, with their hooks.
        """
        for node, number in wanted:
            self.wanted.setdefault(node, set()).add(number)
        leading = set(self.wanted)
        needed: set[Node] = set()
        for node in reversed(nodes):
            if not node.edges:
                node.ends(leading)
            for e in node.edges:
                if e and (e[0] if e.__class__ is tuple else e) in leading:
                    leading.add(node)
                    needed.add(node)
                    break
        self.needed = needed
        if accumulate:
            needed.update([node for node in self.wanted if node in self.nodes or node in self.waiting])
            self.wanted = {}

    def will_run(self, node: Node) -> bool:
        """Whether this pass reaches `node`."""
        if self.needed is not None:
            return node in self.needed or (node in self.wanted and (node in self.nodes or node in self.waiting))
        return node in self.nodes or node in self.waiting

    # -- running -------------------------------------------------------------------------------------------------
    def arrive(self, e: object, ct: Array | None) -> None:
        """Send a cotangent along an edge."""
        node, number = e if e.__class__ is tuple else (e, 0)
        if ct is not None:
            if node.is_multi_result:
                slots = self.arrived.setdefault(node, {})
                slots[number] = added(slots[number], ct) if number in slots else ct
            elif node in self.arrived:
                self.arrived[node] = added(self.arrived[node], ct)
            else:
                self.arrived[node] = ct
        if node.__class__ is AccumulateGrad:
            self.waiting[node] -= 1
            if not self.waiting[node]:
                self.finish(node)

    def run(self, nodes: list[Node]) -> None:
        arrived, needed, wanted = self.arrived, self.needed, self.wanted
        recording, watching, retain_graph = self.create_graph, self.watching, self.retain_graph
        for node in nodes:
            ct = arrived.pop(node, None)
            hooks = node.hooks
            skipped = ct is None or (needed is not None and node not in needed)
            if (hooks is not None and not skipped) or (node in wanted and ct is not None):
                ct = self.observed(node, ct)
            if skipped:
                self.skip(node)
                continue
            if node.is_multi_result:
                ct = tuple(map(ct.get, range(node.count)))
            result = node.pull(ct, recording) if hooks is None and not watching else self.applied(node, ct)
            if not retain_graph:
                node.release()
            self.deliver(node.edges, result)

    def skip(self, node: Node) -> None:
        """Skip a node: nothing arrived at it, or nothing is wanted from it."""
        for e in node.edges:
            if e and (e[0] if e.__class__ is tuple else e).__class__ is AccumulateGrad:
                self.arrive(e, None)

    def applied(self, node: Node, ct: Array) -> Sequence[Array]:
        """Run a node on the arrived cotangents, with its hooks."""
        hooks = node.hooks
        if hooks is not None and hooks.before:
            ct = self.before(node, ct)
            if ct is None:
                return [None] * len(node.edges)
        result = self.watched(node, ct) if self.watching else node.pull(ct, self.create_graph)
        return self.after(node, result, ct) if hooks is not None and hooks.after else result

    def deliver(self, edges: Sequence[Any], results: Sequence[Any]) -> None:
        """Send results along edges."""
        arrived, waiting = self.arrived, self.waiting
        for e, x in zip(edges, results):
            if not e:
                continue
            if e.__class__ is AccumulateGrad:
                # The usual case of `arrive` and `finish`, without a call.
                if x is None or waiting[e] > 1 or e.hooks is not None or e in arrived or self.needed is not None:
                    self.arrive(e, x)
                else:
                    waiting[e] = 0
                    self.leaves.append((e, x.ct if x.__class__ is MaskedCotangent else x))
            elif e.__class__ is tuple and x is not None:
                # The usual case of `arrive`, without a call.
                slots = arrived.get(e[0])
                if slots is None and e[0].is_multi_result:
                    arrived[e[0]] = {e[1]: x}
                elif slots.__class__ is dict and e[1] not in slots:
                    slots[e[1]] = x
                else:
                    self.arrive(e, x)
            elif e.__class__ is tuple or x is None or e in arrived:
                self.arrive(e, x)
            else:
                arrived[e] = {0: x} if e.is_multi_result else x

    def finish(self, leaf: AccumulateGrad) -> None:
        """Finish a leaf at which all cotangents have arrived."""
        ct = self.arrived.pop(leaf, None)
        if ct is None:
            return
        runs = self.needed is None or leaf in self.needed
        if (leaf.hooks is not None and runs) or leaf in self.wanted:
            ct = self.observed(leaf, ct)
        if runs:
            if leaf.hooks is not None and leaf.hooks.before:
                ct = self.before(leaf, ct)
                if ct is None:
                    return
            self.leaves.append((leaf, ct.ct if ct.__class__ is MaskedCotangent else ct))

    # -- hooks ---------------------------------------------------------------------------------------------------
    def shown(self, ct: object) -> Any:
        """Return a cotangent as users see it."""
        ct = unmasked(ct)
        if ct is None or self.create_graph:
            return ct
        array = ct if isinstance(ct, Carrier) else np.asarray(ct)
        self.referenced.add(id(array))
        return rewrap(array, None)

    def plain(self, x: Any) -> Any:
        """Convert a user's Tensor to a cotangent."""
        if self.create_graph or x is None:
            return x
        self.referenced.add(id(x.array))
        return x.array

    def observed(self, node: Node, ct: Any) -> Any:
        """Return the arrived cotangent after the hooks of Tensors; store it if it is retained or wanted.

        A hook on an output of a node with several at which no cotangent arrived receives None.
        """
        slots = ct if node.is_multi_result else {0: ct}
        hooks = node.hooks
        wanted = self.wanted.get(node, ())
        for number in sorted(slots if hooks is None else {**hooks.tensor, **slots}):
            before = x = slots.get(number)
            if hooks is not None:
                for hook in list(hooks.tensor.get(number, {}).values()):
                    x = self.replaced(x, hook, hook(self.shown(x)))
                if x is None:  # no cotangent arrived at this output of the node
                    continue
                if number in hooks.retained:
                    self.retain(node, number, hooks.retained[number](), x)
            if number in wanted:  # as in PyTorch: before its hooks if the pass continues from here
                self.captured[node, number] = unmasked(before if node in self.needed else x)  # type: ignore[operator]
            slots[number] = x
        return slots if node.is_multi_result else slots[0]

    def replaced(self, ct: Any, hook: Callable[..., object], result: object) -> Any:
        """Return the cotangent after a hook on a Tensor, which may have replaced it."""
        if result is None:
            return ct
        if ct is None:
            raise RuntimeError(located("can't replace a None gradient with a non-None value"))
        _fits(hook, unmasked(ct), result)
        return self.plain(result)

    def retain(self, node: Node, number: int, x: Any, ct: Array) -> None:
        if x is not None and x.grad_fn is node and x.output_nr == number:
            self.retained.append((x, unmasked(ct)))

    def before(self, node: Node, ct: Any) -> Any:
        """Return the cotangents of a node after its prehooks."""
        cts = ct if node.is_multi_result else (ct,)
        assert node.hooks is not None
        for hook in list(node.hooks.before.values()):
            result = hook(tuple([self.shown(x) for x in cts]))
            if result is not None:
                cts = tuple([self.plain(x) for x in _checked(hook, result, cts)])
        return cts if node.is_multi_result else cts[0]

    def after(self, node: Node, results: Sequence[object], ct: Any) -> Sequence[Any]:
        """Return the results of a node after its hooks."""
        outputs = tuple([self.shown(x) for x in (ct if node.is_multi_result else (ct,))])
        positions = [k for k, e in enumerate(node.edges) if e is not False]
        assert node.hooks is not None
        for hook in list(node.hooks.after.values()):
            result = hook(tuple([self.shown(results[k]) for k in positions]), outputs)
            if result is not None:
                replaced = list(results)
                for k, x in zip(positions, _checked(hook, result, [results[k] for k in positions])):
                    replaced[k] = self.plain(x)
                results = replaced
        return results

    # -- anomalies -----------------------------------------------------------------------------------------------
    def watched(self, node: Node, ct: Array) -> Sequence[Array]:
        """Check a node's results for nan; the error names the line that made the node."""
        self.running = node
        try:
            with warnings.catch_warnings():
                result = node.pull(ct, self.create_graph)
            if STATE.check_nan:
                for k, x in enumerate(result):
                    value = getattr(unmasked(x), "array", unmasked(x))
                    if isinstance(value, np.ndarray | np.generic) and np.isnan(value).any():
                        node.blame(ct, result)
                        message = f"Function '{node.name()}' returned nan values in its {k}th output."
                        raise RuntimeError(located(message, _source_line(node)))
        except Exception:
            _warn_of(node, "Error detected in {}. ", "Traceback of forward call that caused the error:")
            parent = node.metadata.get("parent_")
            while parent is not None:
                what = "Traceback of forward call that induced the previous calculation:"
                _warn_of(parent, "\n\nPrevious calculation was induced by {}. ", what)
                parent = parent.metadata.get("parent_")
            raise
        return result

    # -- writing -------------------------------------------------------------------------------------------------
    def write(self) -> None:
        """Add the cotangents of leaves, and retained ones, to `grad`; then run the hooks on accumulated gradients."""
        with writing:
            if self.retained:
                self.write_retained()
            for leaf, ct in self.leaves:
                leaf.accumulate(ct, self.create_graph, self.referenced)
        # Hooks record if the pass is recorded. Otherwise they may update the leaf in place.
        mode, outer, STATE.enabled, STATE.sweep = STATE.enabled, STATE.sweep, self.create_graph, self
        try:
            for leaf, ct in self.leaves:
                if leaf.hooks is not None:
                    self.accumulated(leaf, ct)
        finally:
            STATE.enabled, STATE.sweep = mode, outer
        if self.callbacks:
            self.call_back()

    def call_back(self) -> None:
        """Call the functions that were queued during the pass, and those that they queue."""
        outer, STATE.sweep = STATE.sweep, self
        try:
            while self.callbacks:
                first, *rest = self.callbacks
                self.callbacks = tuple(rest)
                first()
        finally:
            STATE.sweep = outer

    def accumulated(self, leaf: AccumulateGrad, ct: Array) -> None:
        """Run the hooks of a leaf whose gradient has been accumulated."""
        assert leaf.hooks is not None
        for hook in list(leaf.hooks.accumulated.values()):
            if hook(leaf.variable) is not None:
                raise RuntimeError(located("Tensor post accumulate grad hooks should return None."))
        if leaf.hooks.after:
            self.after(leaf, (), ct)

    def write_retained(self) -> None:
        """Add retained cotangents to `grad`."""
        for x, ct in self.retained:
            old = x._grad
            if self.create_graph:
                x._grad = ct.clone() if old is None else old + ct
            else:
                x._grad = rewrap(owned(ct, self.referenced) if old is None else old.array + ct, None)


def _warn_of(node: Node, what: str, of_traceback: str) -> None:
    """Warn that a node failed, with the lines that made it; print it where warnings are errors, as PyTorch does."""
    trace = node.metadata.get("traceback_")
    known = (
        f"{of_traceback}\n{''.join(trace)}"
        if trace
        else "No forward pass information available. Enable detect anomaly during forward pass for more information."
    )
    text = what.format(node.name()) + known
    try:
        warnings.warn(text, UserWarning, stacklevel=4)
    except UserWarning:
        sys.stderr.write(f"UserWarning: {text}\n")


def _source_line(node: Node) -> str:
    """Return the user's line that made a node, if that was recorded."""
    for frame in reversed(node.hooks.metadata.get("traceback_", ()) if node.hooks is not None else ()):
        result = re.match(r'\s*File "(.*)", line (\d+)', frame)
        if result and user_file(result[1]):
            return f"{result[1]}:{result[2]}"
    return ""


def _called(hook: Callable[..., object]) -> str:
    return getattr(hook, "__name__", type(hook).__name__)


def _checked(hook: Callable[..., object], result: Array, cts: Sequence[Any]) -> Sequence[Any]:
    """Check the result of a node's hook, which replaces `cts`; None stands for zero."""
    if not isinstance(result, tuple):
        raise TypeError(located(f"expected tuple, but hook returned '{type(result).__name__}'"))
    if len(result) != len(cts):
        raise RuntimeError(
            located(
                f"hook '{_called(hook)}' has returned an incorrect number of values (got {len(result)}, "
                f"but expected {len(cts)})"
            )
        )
    for ct, x in zip(map(unmasked, cts), result):
        if ct is None and x is not None:
            raise RuntimeError(located("can't replace a None gradient with a non-None value"))
        if x is not None:
            _fits(hook, ct, x)
    return result


def _fits(hook: Callable[..., object], ct: Any, result: Any) -> None:
    """Raise unless a hook returned a Tensor that can replace the cotangent `ct`."""
    if not hasattr(result, "_edge"):
        raise TypeError(located(f"expected Variable, but hook returned '{type(result).__name__}'"))
    if result.dtype != ct.dtype:
        was, got = type_name(ct.dtype), type_name(result.dtype)
        raise RuntimeError(
            located(f"hook '{_called(hook)}' has changed the type of value (was {was}Tensor got {got}Tensor)")
        )
    if result.shape != ct.shape:
        raise RuntimeError(located(f"hook '{_called(hook)}' has changed the size of value"))


def run(
    roots: Sequence[tuple[Any, Any]],
    create_graph: bool,
    retain_graph: bool,
    wanted: Sequence[Edge] = (),
    accumulate: bool = False,
) -> tuple[Sweep, list[Any]]:
    """Send cotangents along the edges `roots`, and run the nodes they reach.

    Returns the pass, with no gradient written yet, and the cotangents that arrived at the `wanted` edges. None stands
    for an edge without a cotangent; all are None with `accumulate`.
    """
    edges = [e if e.__class__ is tuple else (e, 0) for e, _ in roots]
    recording = create_graph or STATE.level is not None  # with tangents, gradients are Tensors too
    if recording and not create_graph:
        roots = [(e, ct if hasattr(ct, "_edge") else rewrap(ct, None)) for e, ct in roots]
    work = Sweep(recording, retain_graph)
    work.referenced.update([id(ct) for _, ct in roots])
    nodes = work.reachable(edges)
    for leaf in work.waiting:
        leaf.variable._reached()  # type: ignore[attr-defined]
    if wanted:
        work.restrict(nodes, wanted, accumulate)
    mode, outer, before = STATE.enabled, STATE.sweep, traps()
    STATE.enabled, STATE.sweep = create_graph, work
    try:
        set_traps(QUIET)
        for e, (_, ct) in zip(edges, roots):
            work.arrive(e, ct)
        work.run(nodes)
    finally:
        STATE.enabled, STATE.sweep = mode, outer  # first, because a signal handler may raise after a call
        restore_traps(before)
    return work, [work.captured.get(e) for e in wanted]
