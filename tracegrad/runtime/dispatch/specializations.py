"""Paths: programs that hold for one key, one state of the captured variables and one sequence of answers."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import CapacityError
from tracegrad.ir import Graph, evaluate
from tracegrad.runtime.dispatch.fast_path import hot_call
from tracegrad.runtime.dispatch.fast_path_header import Header, of_function, of_method
from tracegrad.runtime.execution.entry_callable import MISS, can_watch, release_arena
from tracegrad.runtime.execution.numpy_executor import own_outputs
from tracegrad.runtime.execution.program import Program, as_taken, compile_program, conformed
from tracegrad.runtime.execution.strided_inputs import Lies, copied, lies_of, strides_of
from tracegrad.trace.builder.value_guards import Answers, value_key
from tracegrad.trace.driver.trace import Trace
from tracegrad.trace.effects.effects import apart
from tracegrad.trace.sources.signature import Binder, Call
from tracegrad.trace.world.view_bases import views_of

if TYPE_CHECKING:
    from tracegrad.runtime.dispatch.compiled_backward import OnTape
    from tracegrad.runtime.dispatch.trace_store import Kept

__all__ = ["Found", "Interpreted", "Path", "Specialization"]

# The turns of a loop that a derivative has room for at first; what a call needs beyond is found out when it runs.
ROOM = 128
# Of an array that is given away and another one, which must not share memory: each call looks at all of them.
MOST_PAIRS = 2**14
# So many bytes, for each node of a graph and some, are worth a program that reads them as they lie.
LEAST_TURNED = 2**11
MOST_HOT = 32  # of a path, for as many generators of random numbers that came again
MOST_LIES = 16  # of a path; what lies in other ways is copied
COMES = object()  # stands for such a program, which the next call makes


class Path:
    """A program for one key, one state of the captured variables, and one sequence of answers."""

    def __init__(self, trace: Trace, program: Any, seconds: dict[str, float], on_tape: OnTape | None = None):
        self.trace, self.program, self.seconds, self.on_tape = trace, program, seconds, on_tape
        self.keys = tuple(map(value_key, trace.script))
        self._writes = bool(trace.groups or trace.written)
        self.hots: dict[Any, Any] = {}
        self._last: list[Any] = []
        self._generators: tuple[int, ...] = ()
        self._turns: dict[Any, Any] = {}
        # Programs that read arrays by their strides.
        self._laid: dict[Any, Any] = {}
        self.kept = 0  # what has been looked at for the disk cache: 1 is its graph, 2 its program
        self.record = b""  # what is there of it

    def begins(self, answers: Answers) -> bool:
        """Whether the path may hold for a call with these answers to the first questions."""
        keys = answers.keys
        return self.trace.varying != answers.varying or self.keys[: len(keys)] == keys

    def comes_again(self, call: Call) -> bool:
        """Whether the generators of random numbers among the arguments are those of the last call, or there are none.
        A hot path is for those, so it is made for others that come again."""
        if not call.generators:
            return True
        found = call.given_generators()
        same = len(found) == len(self._last) and all(map(operator.is_, found, self._last))
        self._last, self._generators = found, tuple(map(id, found))
        return same and len(self.hots) < MOST_HOT

    def is_hot(self, form: tuple[Any, ...]) -> bool:
        """Whether there is a hot path for calls of this form, with the generators of the last one."""
        return (*form, *self._generators) in self.hots

    def hot(
        self, binder: Binder, call: Call, plain: type, name: str, donated: tuple[int, ...] = (), lies: Lies = ()
    ) -> Any:
        """The hot path for calls like `call`: a subclass of `plain` with another `__call__`. The methods of classes are
        what Python calls with the least ado. Calls that own the leaves that are `donated` give them away. `lies` says
        how the arrays lie."""
        form = (len(call.args), *call.kwargs, *lies, *self._generators)
        if form not in self.hots:
            header = of_method(binder.signature, len(call.args), list(call.kwargs))
            found, made = None, self._code(call, header, donated, lies)
            if made is not None:
                made.__qualname__ = name  # for Python's own errors about arguments
                found = type(plain.__name__, (plain,), {"__call__": made, "__slots__": (), "turn": None})
            self.hots[form] = found
        return self.hots[form] or plain

    def turn(self, call: Call, donated: tuple[int, ...] = (), lies: Lies = ()) -> Any:
        """The same as a function of the dispatcher and the values of all arguments, which returns MISS where it does
        not know; None if there is none. For a call that does not own what is donated it is one that overwrites
        nothing."""
        form = (len(call.args), *call.kwargs, *lies, *self._generators)
        gives = not donated or all(owns_memory(call.leaves[i]) for i in donated)
        key = (*form, gives)
        if key not in self._turns:
            made: Any = self._code(call, of_function(len(call.args), list(call.kwargs)), donated if gives else (), lies)
            self._turns[key] = made
            if made is not None:
                made.key, made.face = (call.key, lies), self.hots[form] if gives else None
                if made.face is not None:
                    made.face.turn = made
        return self._turns[key]

    def arrays(self, leaves: Sequence[int]) -> tuple[int, ...]:
        """Those of these leaves that are arrays with axes."""
        kinds, avals = self.trace.kinds, self.trace.graph.avals
        return tuple([i for i in leaves if kinds[i] == "array" and avals[i].ndim])

    def _code(self, call: Call, header: Header, donated: tuple[int, ...], lies: Lies) -> Any:
        if not lies:
            program = self._giving(donated) if donated else self.program
            return hot_call(self.trace, program, call, header, self.on_tape)
        if self._writes or self.on_tape is not None or len(self.hots) > 2 * MOST_LIES:
            return None
        program = self._known(lies)
        return hot_call(self.trace, program, call, header, None, lies, self._laid)

    def lies(self, inputs: Sequence[Any]) -> Lies:
        """How the arrays of a call lie, leaves first, that are not in row-major order, as there are programs for that;
        nothing if all are."""
        found = lies_of(inputs, self.trace.layouts)
        return found if not found or strides_of(found) in self._laid else copied(found)

    def _known(self, lies: Lies) -> Any:
        """The program for calls whose arrays lie so; `COMES` if the next such call makes one."""
        return self._laid.get(strides_of(lies), self.program)

    def answering(self, inputs: Sequence[Any]) -> tuple[Any, Lies]:
        """The program that has answered such a call, and how it takes the arrays."""
        lies = self.lies(inputs)
        program = self._known(lies)
        return (self.program, copied(lies)) if program is COMES else (program, lies)

    def ready(self, lies: Lies) -> bool:
        """Whether there is machine code for calls whose arrays lie so."""
        program = self._known(lies)
        return program is not COMES and program.tier is None

    def _program_for(self, lies: Lies, inputs: Sequence[Any]) -> Any:
        """The program for arrays that lie so, from the second call on; None if it is better to copy them."""
        strides = strides_of(lies)
        found = self._laid.get(strides)
        if found is None and len(self._laid) < MOST_LIES and self._worth(lies, inputs):
            self._laid[strides] = COMES
        if found is COMES:
            like = self.program
            how = "background" if like.first_call == "background" else "compile", like.optimize
            found = self._laid[strides] = compile_program(
                like.graph, like.kinds, like.single, like.name, like.checked, *how, strides=strides
            )
        return found

    def _worth(self, lies: Lies, inputs: Sequence[Any]) -> bool:
        """Whether to read arrays as they lie is worth a program of its own."""
        if self.on_tape is not None or self._writes or not isinstance(self.program, Program):
            return False
        size = sum([x.nbytes for lie, x in zip(lies, inputs) if lie and lie.strides])
        return bool(size and size >= LEAST_TURNED * (8 + len(self.program.graph.nodes)))

    def _giving(self, donated: tuple[int, ...]) -> Any:
        """The program that overwrites what is donated, where results fit there; else the one that does not.

        A call that is left to another path, or to Python, needs its arguments as they were."""
        trace, program = self.trace, self.program
        simple = not (trace.asked(program.checked) or self._writes or self.on_tape)
        many = len(donated) * len(trace.kinds) > MOST_PAIRS
        if many or not simple or not can_watch(program.entry):
            return program
        like = program.graph, program.kinds, program.single, program.name, program.checked
        made = compile_program(*like, optimize=program.optimize, donated=donated)
        if not made.donors:
            return program
        release_arena(program.entry)  # which is not needed from now on
        return made

    def run(self, leaves: Sequence[Any], captured: Sequence[Any]) -> tuple[Sequence[Any] | None, Answers | None]:
        """The outputs of the graph, guard values last, or None when the call has to run as plain Python; and the
        answers up to the first that is not as assumed, or None when all are."""
        inputs = (*leaves, *captured)
        lies = lies_of(inputs, self.trace.layouts)
        program = self._program_for(lies, inputs) if lies else None
        if program is not None:
            return self._attempt(program, as_taken(inputs, lies), inputs)
        given = [conformed(x) for x in inputs]
        tier = None if self.program is None else self.program.tier
        if tier is not None and tier.begun and self.trace.guards:
            # It is only compiled, or replayed once more, for a call that is one of this path.
            diverged = self.trace.diverges(self._answers(given))
            if diverged is not None:
                return None, diverged
        outputs, diverged = self._attempt(self.program, given, given)
        if tier is not None and diverged is not None and outputs is not None and self.waits:
            # What was assumed are answers of compiled code, which rounds otherwise than NumPy.
            self.program.compile()
            return self._attempt(self.program, given, given)
        return outputs, diverged

    def _attempt(
        self, program: Any, given: Sequence[Any], inputs: Sequence[Any]
    ) -> tuple[Sequence[Any] | None, Answers | None]:
        """The outputs of a program for what it is given of the inputs, and the first answer that is another one."""
        outputs = None if program is None else program.attempt(given)
        if outputs is None:
            return None, self.trace.diverges(self._answers(inputs))
        outputs = (outputs,) if program.single else outputs
        if not self.trace.guards:
            return outputs, None
        return outputs, self.trace.diverges(self.trace.answers(outputs, program.checked))

    @property
    def waits(self) -> bool:
        """Whether the program has no machine code yet."""
        return self.program is not None and self.program.tier is not None

    @property
    def stage(self) -> str:
        """What computes calls of this path, in words."""
        if self.program is None:
            return "plain Python"
        return "NumPy, op by op" if self.waits or isinstance(self.program, Interpreted) else "machine code"

    def overlaps(self, call: Call, captured: Sequence[Any]) -> bool:
        """Whether what the call writes to is also something else that it reads, or cannot be written: the graph does
        not know that. Within `on_call`."""
        if not self._writes:
            return False
        if self.trace.mixes():
            return True
        written = [source.read() for source in self.trace.written]
        return bool(written) and not apart(written, [x for x in (*call.leaves, *captured) if isinstance(x, np.ndarray)])

    def views(self, call: Call, captured: Sequence[Any]) -> frozenset[Hashable]:
        """Where the call writes to what is also something else that it reads: what lets another trace know that."""
        if not self.overlaps(call, captured):
            return frozenset()
        return views_of(self.trace.captures, captured) - self.trace.varying

    def _answers(self, given: Sequence[Any]) -> Iterator[Any]:
        """The guard values by NumPy, each when it is asked for, as far as nothing raises on the way to them."""
        computed = dict(zip(self.trace.graph.inputs, map(np.asarray, given)))
        with contextlib.suppress(Exception):  # whatever it is, the call meets it again
            for guard in self.trace.guards:
                yield evaluate(guard.node, computed)


def owns_memory(x: Any) -> bool:
    """Whether an array may be overwritten without anybody else's knowing: it is no view, and may be written to."""
    return type(x) is np.ndarray and x.flags.owndata and x.flags.writeable


# A path that holds for a call; the outputs of its program, or None when the call has to run as plain Python; and the
# captured arrays it was given.
Found = tuple[Path, Sequence[Any] | None, Sequence[Any]]


class Specialization:
    """The paths of one key, the most recently used first."""

    def __init__(self) -> None:
        self.paths: tuple[Path, ...] = ()
        self.varying: set[Hashable] = set()
        self.room = ROOM
        self.kept: Kept | None = None  # what the disk cache has

    def promote(self, path: Path) -> None:
        others = tuple([p for p in self.paths if p is not path])
        if path.program is None:  # it is tried last, because it has to be evaluated
            self.paths = (*others, path)
        elif not self.paths or self.paths[0] is not path:
            self.paths = (path, *others)

    def run(self, path: Path, call: Call, captured: Sequence[Any]) -> tuple[Sequence[Any] | None, Answers | None]:
        """As a path runs. Where the call writes to what is also something else that it reads, and a trace can know what
        of these are views of what, another trace is to take the place of the path."""
        outputs, diverged = path.run(call.leaves, captured)
        views = path.views(call, captured) if diverged is None else frozenset()
        if not views:
            return outputs, diverged
        self.varying |= views
        self.paths = tuple([p for p in self.paths if p is not path])
        return None, Answers()

    def forget(self, answers: Answers, derived: bool) -> bool:
        """Whether there is room for another path, as the one that was used longest ago is forgotten: where no path
        assumes what is outside now, as none led to `answers`, and of derivatives, which do not run as plain Python."""
        if answers.keys and not derived:
            return False
        self.paths = self.paths[:-1]
        return True

    def enlarge(self) -> None:
        """Forget programs that have too little room for what derivatives keep of the turns of loops."""
        self.room *= 16
        self.kept = None
        self.paths = ()


class Interpreted:
    """A path that is not worth compiling, because its specialization has too many: run op by op, once."""

    report, checked, tier = None, False, None

    def __init__(self, graph: Graph):
        self.graph, self.single = graph, False

    def entry(self, *leaves: Any) -> Any:
        return MISS

    def run(self, leaves: Sequence[Any]) -> Any:
        return tuple(own_outputs(self.graph, leaves))

    def attempt(self, leaves: Sequence[Any]) -> Any:
        try:
            return self.run(leaves)
        except CapacityError:
            raise
        except Exception:  # whatever it is, the call meets it again
            return None
