"""Derivatives of losses over chunked data, `tg.dask`: chunks on many machines, as Dask has them.

One compiled program computes each chunk on its worker. The results of the chunks are added along a tree that is fixed
by their order (`tree_reduction.py`): the bits are the same for any number of workers, and in one process. Dask is
imported when an object of Dask is used; chunks that are plain arrays need no Dask.
"""

from tracegrad.dask.map_reduce import grad, value_and_grad

__all__ = ["grad", "value_and_grad"]
