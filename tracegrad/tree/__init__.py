"""Pytrees: nested containers of leaves, taken apart into a list and a structure, and put together again.

`None` is a node without children. A tuple, list or namedtuple has its items as children, a dict its values, a
dataclass its fields (except those with `metadata={"static": True}`, which belong to the structure);
`register_pytree_node` adds other classes. Everything else is a leaf, instances of unregistered subclasses of
the built-in containers included. As in JAX, the children of a dict (and of a defaultdict) come in the order
of its sorted keys, whatever the order of insertion; keys that cannot be compared keep the order of insertion,
and so does an OrderedDict, for which the order is part of the structure.

A structure (`TreeDef`) is hashable and compares exactly: what is static in it (dict keys, static fields, the
auxiliary data of registered classes) tells 1 from 1.0 and True, and 0.0 from -0.0.
"""

from tracegrad.tree.kinds import register_leaf, register_pytree_node
from tracegrad.tree.walk import (
    TreeDef,
    children,
    flatten,
    flatten_up_to,
    is_node,
    leaves,
    map,
    paths,
    skeleton,
    structure,
    unflatten,
    with_children,
)

__all__ = [
    "TreeDef",
    "children",
    "flatten",
    "flatten_up_to",
    "is_node",
    "leaves",
    "map",
    "paths",
    "register_leaf",
    "register_pytree_node",
    "skeleton",
    "structure",
    "unflatten",
    "with_children",
]
