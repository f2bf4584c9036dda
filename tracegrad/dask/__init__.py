"""`tg.dask`: derivatives of a loss over data that lie in chunks on many machines, as Dask has them.

Each chunk is computed where it lies, by one compiled program, and what the chunks give is added along a tree that is
fixed by their order (`tree_reduction.py`): the bits are the same for any number of workers, and in one process. Dask is
imported where something of Dask's is computed with; chunks that are plain arrays need none.
"""

from tracegrad.dask.map_reduce import grad, value_and_grad

__all__ = ["grad", "value_and_grad"]
