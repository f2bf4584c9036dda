"""Random numbers of NumPy's generators as ops: the state of a generator is an array, and what is drawn is a function of
that, which gives the numbers and the next state. So loops and branches carry states as they carry other values, and
what is computed again draws the same.

    state, u = draw(state, method="random", args=(), kwargs=(), shape=(), dtype="float64")

Arguments are written as `("is", x)` for a literal and `("of", k)` for the operand of this number.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracegrad.avals import LITERALS, Aval
from tracegrad.errors import DTypeError
from tracegrad.ops.core.forms import Draw
from tracegrad.ops.core.op import AS_WRITTEN, Op, Several, bind, primitive
from tracegrad.ops.shape.linear import broadcast_to
from tracegrad.utils.lazy_dataclass import record

__all__ = ["Moving", "are_apart", "draw", "draw_by", "is_stream", "kind_of", "read_state", "sample", "write_state"]

_WORD = 2**64 - 1
_BIT_GENERATORS: tuple[Any, ...] = (
    np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64,
)  # fmt: skip


# -- states as arrays ----------------------------------------------------------------------------------------------
def _half(words: list[int]) -> dict[str, int]:
    """Half of a word that was drawn before, if there is one. All words are states of some kind."""
    return {"has_uint32": int(words[0] != 0), "uinteger": words[1] & 0xFFFFFFFF}


def _of_pcg64(state: dict[str, Any]) -> list[int]:
    inside = state["state"]
    wide = [word for x in (inside["state"], inside["inc"]) for word in (x & _WORD, x >> 64)]
    return [*wide, state["has_uint32"], state["uinteger"]]


def _to_pcg64(words: list[int]) -> dict[str, Any]:
    inside = {"state": words[0] | words[1] << 64, "inc": words[2] | words[3] << 64}
    return {"state": inside, **_half(words[4:])}


def _of_mt19937(state: dict[str, Any]) -> list[int]:
    return [*state["state"]["key"], state["state"]["pos"]]


def _to_mt19937(words: list[int]) -> dict[str, Any]:
    key = np.array(words[:624], np.uint64).astype(np.uint32)
    return {"state": {"key": key, "pos": min(words[624], 624)}}


def _of_philox(state: dict[str, Any]) -> list[int]:
    inside = state["state"]
    rest = [state[name] for name in ("buffer_pos", "has_uint32", "uinteger")]
    return [*inside["counter"], *inside["key"], *state["buffer"], *rest]


def _to_philox(words: list[int]) -> dict[str, Any]:
    counter, key, buffer = (np.array(words[a:b], np.uint64) for a, b in ((0, 4), (4, 6), (6, 10)))
    rest = {"buffer_pos": min(words[10], 4), **_half(words[11:])}
    return {"state": {"counter": counter, "key": key}, "buffer": buffer, **rest}


def _of_sfc64(state: dict[str, Any]) -> list[int]:
    return [*state["state"]["state"], state["has_uint32"], state["uinteger"]]


def _to_sfc64(words: list[int]) -> dict[str, Any]:
    return {"state": {"state": np.array(words[:4], np.uint64)}, **_half(words[4:])}


_CODES: dict[str, tuple[Callable[[Any], list[int]], Callable[[list[int]], Any]]] = {
    "PCG64": (_of_pcg64, _to_pcg64), "PCG64DXSM": (_of_pcg64, _to_pcg64), "MT19937": (_of_mt19937, _to_mt19937),
    "Philox": (_of_philox, _to_philox), "SFC64": (_of_sfc64, _to_sfc64),
}  # fmt: skip


def _bits(generator: Any) -> Any:
    old = isinstance(generator, np.random.RandomState)
    return generator._bit_generator if old else generator.bit_generator


def is_stream(generator: Any) -> bool:
    """Whether loops draw from a generator in less time than Python does: it is as `default_rng` makes it."""
    return type(generator) is np.random.Generator and type(generator.bit_generator) is np.random.PCG64


def are_apart(generators: Sequence[Any]) -> bool:
    """Whether each of these generators has a state of its own."""
    return len({id(_bits(x)) for x in generators}) == len(generators)


def kind_of(generator: Any) -> str:
    """What tells a generator from those of other classes and algorithms."""
    return f"{type(generator).__name__} {type(_bits(generator)).__name__}"


def read_state(generator: Any) -> np.ndarray[Any, Any]:
    """The state of a generator, an array of uint64."""
    if isinstance(generator, np.random.RandomState):
        state: Any = generator.get_state(legacy=False)
        gauss = np.array([state["gauss"]], np.float64).view(np.uint64)
        more = [state["has_gauss"], *gauss]
    else:
        state, more = generator.bit_generator.state, []
    return np.array([*_CODES[state["bit_generator"]][0](state), *more], np.uint64)


def write_state(generator: Any, words: np.ndarray[Any, Any]) -> None:
    """Put a generator into a state."""
    name = type(_bits(generator)).__name__
    if isinstance(generator, np.random.RandomState):
        inside = _CODES[name][1](words[:-2].tolist())
        gauss = {"has_gauss": int(words[-2] != 0), "gauss": float(words[-1:].view(np.float64)[0])}
        generator.set_state({"bit_generator": name, **inside, **gauss})
    else:
        generator.bit_generator.state = {"bit_generator": name, **_CODES[name][1](words.tolist())}


@record(slots=True, eq=False)
class Moving:
    """A generator that a call moves, and the state that the call has found."""

    generator: Any
    before: np.ndarray[Any, Any]

    def to(self, words: np.ndarray[Any, Any]) -> None:
        """Put it into a state."""
        if not np.array_equal(read_state(self.generator), self.before):
            raise RuntimeError(
                "something else has drawn from a random generator during a call of a traced function that draws from "
                "it in a loop: give each thread a generator of its own"
            )
        write_state(self.generator, words)


# -- what is drawn of a state --------------------------------------------------------------------------------------
class _Memory:
    """The state of a generator where it lies, which takes less than to ask for it: PCG64's, two numbers of 128 bits
    behind a pointer, and half a word."""

    def __init__(self, generator: Any):
        at = generator.bit_generator.ctypes.state_address
        inside = ctypes.c_void_p.from_address(at).value or 0
        self._generator = generator  # whose memory it is
        self._wide = np.asarray((ctypes.c_uint64 * 4).from_address(inside))
        self._half = np.asarray((ctypes.c_uint32 * 2).from_address(at + 8))

    def read(self) -> np.ndarray[Any, Any]:
        words = np.empty(6, np.uint64)
        words[:4], words[4:] = self._wide, self._half
        return words

    def write(self, words: np.ndarray[Any, Any]) -> None:
        self._wide[:] = words[:4]
        self._half[:] = words[4:]

    @classmethod
    def of(cls, generator: Any) -> _Memory | None:
        """That of a generator, if it lies so in this build of NumPy."""
        if not is_stream(generator):
            return None
        write_state(generator, np.array([1, 2, 3, 4, 1, 5], np.uint64))
        found = cls(generator)
        if not np.array_equal(found.read(), read_state(generator)):
            return None
        found.write(np.array([7, 8, 9, 10, 0, 6], np.uint64))
        return found if np.array_equal(found.read(), read_state(generator)) else None


class _Spare(threading.local):
    """Generators of one thread, into whose states nobody looks, with what reads and writes these."""

    def __init__(self) -> None:
        self.by_kind: dict[str, tuple[Any, Any, Any]] = {}

    def of(self, kind: str) -> tuple[Any, Any, Any]:
        found = self.by_kind.get(kind)
        if found is None:
            cls, algorithm = kind.split()
            made = getattr(np.random, cls)(getattr(np.random, algorithm)(0))
            memory = _Memory.of(made)
            read, write = functools.partial(read_state, made), functools.partial(write_state, made)
            found = (made, read, write) if memory is None else (made, memory.read, memory.write)
            self.by_kind[kind] = found
        return found


_SPARE = _Spare()


def _value(x: Any) -> Any:
    if type(x) in LITERALS:
        return x
    return np.array(x) if np.ndim(x) else x.item()


def _drawn(state: Any, operands: tuple[Any, ...], params: dict[str, Any]) -> tuple[Any, Any]:
    """The next state, and what a method gives; an array of no elements for nothing. Of a batch of states, for each."""
    if state.ndim == 1:
        return _drawn_once(state, operands, params)
    inside = {**params, "shape": params["shape"][1:]}
    rows = [_drawn_once(row, tuple([x[k] for x in operands]), inside) for k, row in enumerate(state)]
    answers = np.empty(params["shape"], np.dtype(params["dtype"]))
    for k, (_, answer) in enumerate(rows):
        answers[k] = answer
    return np.array([row for row, _ in rows], np.uint64).reshape(state.shape), answers


def sample(operands: tuple[Any, ...], params: dict[str, Any], state: Any = None) -> Any:
    """What a method gives, as it is, of this state or of any, which is then in the spare generator."""

    def argument(x: Any) -> Any:
        return x[1] if x[0] == "is" else _value(operands[x[1]])

    generator, _, write = _SPARE.of(params["kind"])
    if state is not None:
        write(state)
    kwargs = {name: argument(x) for name, x in params["kwargs"]}
    return getattr(generator, params["method"])(*[argument(x) for x in params["args"]], **kwargs)


def _drawn_once(state: Any, operands: tuple[Any, ...], params: dict[str, Any]) -> tuple[Any, Any]:
    found = sample(operands, params, state)
    answer = np.zeros(0) if found is None else np.asarray(found)
    shape, dtype = params["shape"], np.dtype(params["dtype"])
    if (answer.shape, answer.dtype) != (shape, dtype):
        raise ValueError(f"{params['method']} has given {answer.dtype}{list(answer.shape)}, not {dtype}{list(shape)}")
    return _SPARE.of(params["kind"])[1](), answer


def _aval(state: Aval, *operands: Aval, shape: tuple[int, ...], dtype: str, **params: Any) -> Several:
    return Several((state, Aval(shape, np.dtype(dtype))))


def _aval_of_known(state: Aval, *, method: str, dtype: str, **params: Any) -> Several:
    if dtype == "float16":
        raise DTypeError(f"{method} of a generator gives no float16")
    return _aval(state, dtype=dtype, **params)


@primitive(Draw(), typed=True, on_complex=AS_WRITTEN)
def draw(state: Any, *, kind: str, method: str, args: Any, kwargs: Any, shape: Any, dtype: str) -> Any:
    """The next state of a generator of this kind, and what a method of it gives for arguments that are known."""
    params = {"kind": kind, "method": method, "args": args, "kwargs": kwargs, "shape": shape, "dtype": dtype}
    return _drawn(state, (), params)


@primitive(typed=True)
def draw_by(state: Any, *operands: Any, kind: str, method: str, args: Any, kwargs: Any, shape: Any, dtype: str) -> Any:
    """As `draw`, where arguments are operands, of real numbers; there may be none for them but an exception."""
    params = {"kind": kind, "method": method, "args": args, "kwargs": kwargs, "shape": shape, "dtype": dtype}
    return _drawn(state, operands, params)


def _batch(op: Op) -> Callable[..., Any]:
    """The rule for batches: each example draws for itself."""

    def rule(size: int, batched: Sequence[bool], *operands: Any, shape: tuple[int, ...], **params: Any) -> Any:
        given = [
            x if many else broadcast_to(x, shape=(size, *getattr(x, "shape", ()))) for x, many in zip(operands, batched)
        ]
        return bind(op, tuple(given), {"shape": (size, *shape), **params})

    return rule


draw.def_aval(_aval_of_known)
draw_by.def_aval(_aval)
for _op in (draw, draw_by):
    _op.def_batch(_batch(_op))


@draw.def_samples
def _() -> Any:
    given = {"args": (("is", 3),), "kwargs": ()}
    for make in (np.random.default_rng, np.random.RandomState):
        generator: Any = make(1)
        kind, state = kind_of(generator), read_state(generator)
        yield (state,), {"kind": kind, "method": "standard_normal", "shape": (3,), "dtype": "float64", **given}


@draw_by.def_samples
def _() -> Any:
    generator = np.random.default_rng(2)
    given = {"args": (("of", 0), ("is", 4)), "kwargs": (), "shape": (4,), "dtype": "int64"}
    yield (read_state(generator), np.array(2.5)), {"kind": kind_of(generator), "method": "poisson", **given}
