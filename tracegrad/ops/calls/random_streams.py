"""Random streams: draws of NumPy's generators as ops from a state to the next state and numbers.

The state of a generator is an array. Loops and branches carry states like other values, and a recomputed draw returns
the same numbers.

    state, u = draw(state, method="random", args=(), kwargs=(), shape=(), dtype="float64")

An argument is `("is", x)` for a literal and `("of", k)` for operand number k.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import LITERALS, Aval
from tracegrad.cpython.raw_memory import array_at, pointer_at
from tracegrad.errors import DTypeError
from tracegrad.ops.core.forms import Draw
from tracegrad.ops.core.op import AS_WRITTEN, Op, ResultAvals, Sample, bind, multi_result
from tracegrad.ops.shape.linear import broadcast_to
from tracegrad.typing import Array, NDArray
from tracegrad.utils.lazy_dataclass import record

if TYPE_CHECKING:
    from collections.abc import Iterator


_WORD = 2**64 - 1
_BIT_GENERATORS: tuple[Any, ...] = (
    np.random.PCG64,
    np.random.PCG64DXSM,
    np.random.MT19937,
    np.random.Philox,
    np.random.SFC64,
)


# -- states as arrays ----------------------------------------------------------------------------------------------
def _half(words: list[int]) -> dict[str, int]:
    """The buffered half word of an earlier draw, if there is one. All words are valid states."""
    return {"has_uint32": int(words[0] != 0), "uinteger": words[1] & 0xFFFFFFFF}


def _of_pcg64(state: dict[str, Any]) -> list[int]:
    inside = state["state"]
    state_words = [word for x in (inside["state"], inside["inc"]) for word in (x & _WORD, x >> 64)]
    return [*state_words, state["has_uint32"], state["uinteger"]]


def _to_pcg64(words: list[int]) -> dict[str, dict[str, int] | int]:
    inside = {"state": words[0] | words[1] << 64, "inc": words[2] | words[3] << 64}
    return {"state": inside, **_half(words[4:])}


def _of_mt19937(state: dict[str, Any]) -> list[int]:
    return [*state["state"]["key"], state["state"]["pos"]]


def _to_mt19937(words: list[int]) -> dict[str, dict[str, NDArray | int]]:
    key = np.array(words[:624], np.uint64).astype(np.uint32)
    return {"state": {"key": key, "pos": min(words[624], 624)}}


def _of_philox(state: dict[str, Any]) -> list[int]:
    inside = state["state"]
    rest = [state[name] for name in ("buffer_pos", "has_uint32", "uinteger")]
    return [*inside["counter"], *inside["key"], *state["buffer"], *rest]


def _to_philox(words: list[int]) -> dict[str, NDArray | dict[str, NDArray] | int]:
    counter, key, buffer = (np.array(words[a:b], np.uint64) for a, b in ((0, 4), (4, 6), (6, 10)))
    rest = {"buffer_pos": min(words[10], 4), **_half(words[11:])}
    return {"state": {"counter": counter, "key": key}, "buffer": buffer, **rest}


def _of_sfc64(state: dict[str, Any]) -> list[int]:
    return [*state["state"]["state"], state["has_uint32"], state["uinteger"]]


def _to_sfc64(words: list[int]) -> dict[str, dict[str, NDArray] | int]:
    return {"state": {"state": np.array(words[:4], np.uint64)}, **_half(words[4:])}


_CODES: dict[str, tuple[Callable[[Any], list[int]], Callable[[list[int]], Any]]] = {
    "PCG64": (_of_pcg64, _to_pcg64),
    "PCG64DXSM": (_of_pcg64, _to_pcg64),
    "MT19937": (_of_mt19937, _to_mt19937),
    "Philox": (_of_philox, _to_philox),
    "SFC64": (_of_sfc64, _to_sfc64),
}


def _bits(generator: Any) -> Any:
    old = isinstance(generator, np.random.RandomState)
    return generator._bit_generator if old else generator.bit_generator


def is_stream(generator: object) -> bool:
    """Whether compiled loops draw from a generator faster than Python: it has the type that `default_rng` makes."""
    return type(generator) is np.random.Generator and type(generator.bit_generator) is np.random.PCG64


def have_disjoint_state(generators: Sequence[object]) -> bool:
    """Whether no two of these generators share a state."""
    return len({id(_bits(x)) for x in generators}) == len(generators)


def kind_of(generator: object) -> str:
    """A key of the class and the algorithm of a generator."""
    return f"{type(generator).__name__} {type(_bits(generator)).__name__}"


def read_state(generator: Any) -> NDArray:
    """The state of a generator, an array of uint64."""
    if isinstance(generator, np.random.RandomState):
        state: Any = generator.get_state(legacy=False)
        gauss = np.array([state["gauss"]], np.float64).view(np.uint64)
        extra = [state["has_gauss"], *gauss]
    else:
        state, extra = generator.bit_generator.state, []
    return np.array([*_CODES[state["bit_generator"]][0](state), *extra], np.uint64)


def write_state(generator: Any, words: np.ndarray[Any, Any]) -> None:
    """Set the state of a generator."""
    name = type(_bits(generator)).__name__
    if isinstance(generator, np.random.RandomState):
        inside = _CODES[name][1](words[:-2].tolist())
        gauss = {"has_gauss": int(words[-2] != 0), "gauss": float(words[-1:].view(np.float64)[0])}
        generator.set_state({"bit_generator": name, **inside, **gauss})
    else:
        generator.bit_generator.state = {"bit_generator": name, **_CODES[name][1](words.tolist())}


@record(slots=True, eq=False)
class GeneratorSnapshot:
    """A generator that a call advances, with its state at the beginning of the call."""

    generator: Any
    before: np.ndarray[Any, Any]

    def to(self, words: NDArray) -> None:
        """Set the generator to a state."""
        if not np.array_equal(read_state(self.generator), self.before):
            raise RuntimeError(
                "something else has drawn from a random generator during a call of a traced function that draws from "
                "it in a loop: give each thread a generator of its own"
            )
        write_state(self.generator, words)


# -- draws from a state --------------------------------------------------------------------------------------------
class _GeneratorMemory:
    """Direct access to a generator's state in memory, which is faster than NumPy's interface: for PCG64, two 128-bit
    numbers behind a pointer, and a half word."""

    def __init__(self, generator: Any):
        at = generator.bit_generator.ctypes.state_address
        self._generator = generator  # the owner of the memory
        self._state_words = array_at(pointer_at(at), 4, np.uint64)
        self._half = array_at(at + 8, 2, np.uint32)

    def read(self) -> np.ndarray[Any, Any]:
        words = np.empty(6, np.uint64)
        words[:4], words[4:] = self._state_words, self._half
        return words

    def write(self, words: NDArray) -> None:
        self._state_words[:] = words[:4]
        self._half[:] = words[4:]

    @classmethod
    def of(cls, generator: Any) -> _GeneratorMemory | None:
        """The access to a generator's memory, if it has this layout in the installed NumPy."""
        if not is_stream(generator):
            return None
        write_state(generator, np.array([1, 2, 3, 4, 1, 5], np.uint64))
        result = cls(generator)
        if not np.array_equal(result.read(), read_state(generator)):
            return None
        result.write(np.array([7, 8, 9, 10, 0, 6], np.uint64))
        return result if np.array_equal(result.read(), read_state(generator)) else None


class _Spare(threading.local):
    """Scratch generators of one thread, with functions that read and write their states."""

    def __init__(self) -> None:
        self.by_kind: dict[str, tuple[Any, Any, Any]] = {}

    def of(self, kind: str) -> tuple[Any, Any, Any]:
        result = self.by_kind.get(kind)
        if result is None:
            cls, algorithm = kind.split()
            output = getattr(np.random, cls)(getattr(np.random, algorithm)(0))
            memory = _GeneratorMemory.of(output)
            read, write = functools.partial(read_state, output), functools.partial(write_state, output)
            result = (output, read, write) if memory is None else (output, memory.read, memory.write)
            self.by_kind[kind] = result
        return result


_SPARE = _Spare()


def _value(x: Any) -> Any:
    if type(x) in LITERALS:
        return x
    return np.array(x) if np.ndim(x) else x.item()


def _draw_batch(state: Any, operands: tuple[Any, ...], params: dict[str, Any]) -> tuple[Any, Any]:
    """The next state, and the result of a method, an empty array for None; for a batch of states, one result for
    each."""
    if state.ndim == 1:
        return _draw_once(state, operands, params)
    inside = {**params, "shape": params["shape"][1:]}
    draws = [
        _draw_once(example_state, tuple([x[k] for x in operands]), inside) for k, example_state in enumerate(state)
    ]
    results = np.empty(params["shape"], np.dtype(params["dtype"]))
    for k, (_, result) in enumerate(draws):
        results[k] = result
    return np.array([example_state for example_state, _ in draws], np.uint64).reshape(state.shape), results


def sample(operands: tuple[Any, ...], params: dict[str, Any], state: Any = None) -> Any:
    """The raw result of a method for this state or any state; the scratch generator then has the next state."""

    def argument(x: tuple[str, Any]) -> Any:
        return x[1] if x[0] == "is" else _value(operands[x[1]])

    generator, _, write = _SPARE.of(params["kind"])
    if state is not None:
        write(state)
    kwargs = {name: argument(x) for name, x in params["kwargs"]}
    return getattr(generator, params["method"])(*[argument(x) for x in params["args"]], **kwargs)


def _draw_once(state: Any, operands: tuple[Any, ...], params: dict[str, Any]) -> tuple[Any, Any]:
    result = sample(operands, params, state)
    array = np.zeros(0) if result is None else np.asarray(result)
    shape, dtype = params["shape"], np.dtype(params["dtype"])
    if (array.shape, array.dtype) != (shape, dtype):
        raise ValueError(f"{params['method']} has given {array.dtype}{list(array.shape)}, not {dtype}{list(shape)}")
    return _SPARE.of(params["kind"])[1](), array


def _aval(state: Aval, *operands: Aval, shape: tuple[int, ...], dtype: str, **params: object) -> ResultAvals:
    return ResultAvals((state, Aval(shape, np.dtype(dtype))))


def _aval_of_known(state: Aval, *, method: str, dtype: str, **params: Any) -> ResultAvals:
    if dtype == "float16":
        raise DTypeError(f"{method} of a generator gives no float16")
    return _aval(state, dtype=dtype, **params)


@multi_result(Draw(), typed=True, on_complex=AS_WRITTEN)
def draw(
    state: NDArray,
    *,
    kind: str,
    method: str,
    args: tuple[tuple[str, int], ...],
    kwargs: tuple[object, ...],
    shape: Sequence[int],
    dtype: str,
) -> tuple[NDArray, ...]:
    """The next state of a generator of this kind, and the result of a method for constant arguments."""
    params = {"kind": kind, "method": method, "args": args, "kwargs": kwargs, "shape": shape, "dtype": dtype}
    return _draw_batch(state, (), params)


@multi_result(typed=True)
def draw_by(
    state: NDArray,
    *operands: NDArray,
    kind: str,
    method: str,
    args: tuple[tuple[str, int], ...],
    kwargs: tuple[object, ...],
    shape: Sequence[int],
    dtype: str,
) -> tuple[NDArray, ...]:
    """As `draw`, for arguments that are real operands; it may raise for some of their values."""
    params = {"kind": kind, "method": method, "args": args, "kwargs": kwargs, "shape": shape, "dtype": dtype}
    return _draw_batch(state, operands, params)


def _batch(op: Op) -> Callable[..., object]:
    """Batching rule: each example draws separately."""

    def rule(size: int, batched: Sequence[bool], *operands: Array, shape: tuple[int, ...], **params: object) -> Any:
        args = [
            x if is_batched else broadcast_to(x, shape=(size, *getattr(x, "shape", ())))
            for x, is_batched in zip(operands, batched)
        ]
        return bind(op, tuple(args), {"shape": (size, *shape), **params})

    return rule


draw.def_aval(_aval_of_known)
draw_by.def_aval(_aval)
for _op in (draw, draw_by):
    _op.def_batch(_batch(_op))


@draw.def_samples
def _() -> Iterator[Sample]:
    options = {"args": (("is", 3),), "kwargs": ()}
    for make in (np.random.default_rng, np.random.RandomState):
        generator: Any = make(1)
        kind, state = kind_of(generator), read_state(generator)
        yield (state,), {"kind": kind, "method": "standard_normal", "shape": (3,), "dtype": "float64", **options}


@draw_by.def_samples
def _() -> Iterator[Sample]:
    generator = np.random.default_rng(2)
    options = {"args": (("of", 0), ("is", 4)), "kwargs": (), "shape": (4,), "dtype": "int64"}
    yield (read_state(generator), np.array(2.5)), {"kind": kind_of(generator), "method": "poisson", **options}
