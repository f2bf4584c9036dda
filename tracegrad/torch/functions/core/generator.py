"""Random generators with PyTorch's interface over NumPy's PCG64.

Drawing is safe from several threads. In a trace, functions that compute on the numbers draw anew at each call of the
program (`stream`). Other functions are refused, because a program would repeat the numbers drawn during tracing.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import RANDOMNESS, UnsupportedError, located
from tracegrad.ops.core.recorders import active_recorder
from tracegrad.torch.functions.core.device import CPU, device

if TYPE_CHECKING:
    from tracegrad.typing import NDArray


_SEED = 67280421310721  # seed of every new generator, so that its sequence is reproducible
_WORD = 1 << 64
_STATE = struct.Struct("<Q16s16s?I")


class Generator:
    """Source of random numbers with a seed and a state of its own.

    Parameters
    ----------
    device : str or device
        Device, which is "cpu".

    Examples
    --------
    >>> Generator().manual_seed(7).initial_seed()
    7
    """

    __slots__ = ("_seed", "bits")

    def __init__(self, device: object = "cpu"):
        if str(getattr(device, "type", device)) != "cpu":
            raise RuntimeError(located(f"tracegrad computes on the CPU: there is no generator for device {device!r}"))
        self.manual_seed(_SEED)

    @property
    def device(self) -> device:
        """Return the device of the generator: the CPU."""
        return CPU

    def manual_seed(self, seed: int) -> Generator:
        """Start the sequence that belongs to `seed`, a number of 64 bits; negative ones count from the end.

        ValueError for a number of more bits.
        """
        number = int(seed)
        if not -(_WORD >> 1) <= number < _WORD:
            raise ValueError(located(f"the seed {seed} has more than 64 bits"))
        # One assignment each, so a thread that draws meanwhile sees the old sequence or the new one.
        self.bits = np.random.Generator(np.random.PCG64(number % _WORD))
        self._seed = number % _WORD
        return self

    def seed(self) -> int:
        """Start a sequence that cannot be foretold; returns its seed."""
        entropy = np.random.SeedSequence().entropy
        assert isinstance(entropy, int)
        return self.manual_seed(entropy % _WORD).initial_seed()

    def initial_seed(self) -> int:
        """Return the seed of the current sequence."""
        return self._seed

    def get_state(self) -> NDArray:
        """Return the state of the generator, as bytes for `set_state`."""
        source = self.bits.bit_generator
        with source.lock:
            at: Any = source.state
        state_bytes = (at["state"][field].to_bytes(16, "little") for field in ("state", "inc"))
        packed = _STATE.pack(self._seed, *state_bytes, bool(at["has_uint32"]), at["uinteger"])
        return np.frombuffer(packed, np.uint8).copy()

    def set_state(self, new_state: object) -> Generator:
        """Restore a state of `get_state`; RuntimeError for other bytes."""
        args = np.asarray(new_state)
        if args.dtype != np.uint8 or args.shape != (_STATE.size,):
            raise RuntimeError(located("set_state: not a state that get_state() gave"))
        seed, state, inc, half, word = _STATE.unpack(args.tobytes())
        source = np.random.PCG64()
        source.state = {
            "bit_generator": "PCG64",
            "state": {"state": int.from_bytes(state, "little"), "inc": int.from_bytes(inc, "little")},
            "has_uint32": int(half),
            "uinteger": word,
        }
        self.bits, self._seed = np.random.Generator(source), seed
        return self


default_generator = Generator()
default_generator.seed()


# Number of draws so far. A function of several ops that draws has another result at each call.
drawn = [0]


def stream(name: str, generator: Generator | None = None) -> Any:
    """Return the source of random numbers of the function `name`; in a trace, one that draws at each call."""
    args = default_generator if generator is None else generator
    world: Any = getattr(active_recorder(), "world", None)
    return source(name, args) if world is None else world.generator_in(args, "bits")


def source(name: str, generator: Generator | None = None) -> np.random.Generator:
    """Return the generator of the function `name`: `generator`, or the default one. UnsupportedError within a trace."""
    if active_recorder() is not None:
        raise UnsupportedError(
            located(
                f"{name} draws random numbers, which would be drawn once and recorded as constants; "
                "draw outside and pass the array"
            )
        )
    drawn[0] += 1
    origin = default_generator if generator is None else generator
    for loop in _LOOPS.active:
        loop.note(origin)
    return origin.bits


# -- loops over examples ---------------------------------------------------------------------------------------------
class _ExampleLoop:
    """A loop over examples that call random functions: the generators, and their states at the first draw."""

    __slots__ = ("randomness", "starts", "used")

    def __init__(self, randomness: str):
        self.randomness = randomness
        self.starts: dict[int, tuple[Generator, NDArray]] = {}
        self.used: set[int] = set()  # by the present example

    def next_example(self) -> None:
        """Begin the next example."""
        self.used = set()

    def note(self, generator: Generator) -> None:
        """Note a draw from a generator; its first draw in each example starts at the same state, if they are the same.

        RuntimeError if draws are errors.
        """
        if self.randomness == "error":
            raise RuntimeError(located(RANDOMNESS))
        if self.randomness != "same" or id(generator) in self.used:
            return
        self.used.add(id(generator))
        if id(generator) in self.starts:
            generator.set_state(self.starts[id(generator)][1])
        else:
            self.starts[id(generator)] = generator, generator.get_state()


class _Loops(threading.local):
    active: tuple[_ExampleLoop, ...] = ()


_LOOPS = _Loops()


@contextmanager
def drawing_for_examples(randomness: str) -> Iterator[Callable[[], None]]:
    """Context manager of a loop over examples; its value is called before each of them.

    Random functions raise RuntimeError ("error"), or draw the `same` or `different` numbers in all examples.
    """
    loop, before = _ExampleLoop(randomness), _LOOPS.active
    _LOOPS.active = (*before, loop) if randomness else before
    try:
        yield loop.next_example
    finally:
        _LOOPS.active = before
