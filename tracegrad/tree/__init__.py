"""Pytrees: nested containers of leaves, taken apart into a list and a structure, and put together again.

`None` is a node without children. A tuple, list or namedtuple has its items as children, a dict its values, a
dataclass its fields (except those with `metadata={"static": True}`, which belong to the structure);
`register_pytree_node` adds other classes. Everything else is a leaf, instances of unregistered subclasses of
the built-in containers included. As in JAX, the children of a dict (and of a defaultdict) come in the order
of its sorted keys, so that the leaves of dicts with the same keys can be paired; keys that cannot be compared keep the
order of insertion, and so do those of an OrderedDict. What is put together has its keys in the order of insertion.

A structure (`TreeDef`) is hashable and compares exactly: what is static in it (dict keys and their order, static
fields, the auxiliary data of registered classes) tells 1 from 1.0 and True, and 0.0 from -0.0. `alike` compares but
for the order of the keys of dicts.
"""

from tracegrad.tree.pytree import (
    TreeDef,
    alike,
    children,
    fix,
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
from tracegrad.tree.registry import FIXED_KIND, fixed_value, register_leaf, register_pytree_node, treat_as

__all__ = [
    "FIXED_KIND",
    "TreeDef",
    "alike",
    "children",
    "fix",
    "fixed_value",
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
    "treat_as",
    "unflatten",
    "with_children",
]
