"""The default generator of random numbers, its seed and its state: the namespace `torch.random`."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tracegrad.torch.functions.core.device import check_device
from tracegrad.torch.functions.core.generator import Generator, default_generator
from tracegrad.torch.tape.tensors.docs import TENSOR_DOCS
from tracegrad.torch.tape.tensors.factories import plain, wrap

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tracegrad.torch.tape.tensors.tensor import Tensor
    from tracegrad.typing import DeviceLike

__all__ = [
    "Generator",
    "default_generator",
    "fork_rng",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "seed",
    "set_rng_state",
]


def manual_seed(seed: int) -> Generator:
    """Seed the default generator, and return it.

    >>> manual_seed(0).initial_seed()
    0
    """
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Seed the default generator unpredictably, and return the seed.

    >>> seed() == initial_seed()
    True
    """
    return default_generator.seed()


def initial_seed() -> int:
    """Return the seed of the default generator.

    >>> _ = manual_seed(3)
    >>> initial_seed()
    3
    """
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """Return the state of the default generator.

    >>> state = get_rng_state()
    >>> _ = manual_seed(0)
    >>> set_rng_state(state)
    >>> bool((get_rng_state() == state).all())
    True
    """
    return wrap(default_generator.get_state())


def set_rng_state(new_state: Tensor) -> None:
    """Restore a state of the default generator.

    >>> state = get_rng_state()
    >>> _ = manual_seed(0)
    >>> set_rng_state(state)
    >>> bool((get_rng_state() == state).all())
    True
    """
    default_generator.set_state(plain(new_state))


@contextlib.contextmanager
def fork_rng(
    devices: Iterable[DeviceLike] | None = None, enabled: bool = True, device_type: str = "cpu"
) -> Iterator[None]:
    """Restore the state of the default generator at the end of a `with` block.

    Parameters
    ----------
    devices : iterable of device, optional
        Other devices whose generators are restored; the CPU is the only one.
    enabled : bool, default True
        Whether anything is restored.
    device_type : str, default "cpu"
        Kind of the devices; without effect.

    Yields
    ------
    None
        Nothing.

    Examples
    --------
    >>> state = get_rng_state()
    >>> with fork_rng():
    ...     _ = manual_seed(0)
    >>> bool((get_rng_state() == state).all())
    True
    """
    for each in devices or ():
        check_device(each)
    state = default_generator.get_state() if enabled else None
    try:
        yield
    finally:
        if state is not None:
            default_generator.set_state(state)


TENSOR_DOCS.document(globals(), __all__)
