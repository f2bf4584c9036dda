"""Pytrees: flatten nested containers into a list of leaves and a structure, and unflatten them.

`None` is a node without children. The children of a tuple, list or namedtuple are its items, of a dict its values, of a
dataclass its fields, except fields with `metadata={"static": True}`, which belong to the structure.
`register_pytree_node` adds other classes. All other objects are leaves, also instances of unregistered subclasses of
the built-in containers.

As in JAX, the children of a dict (and of a defaultdict) are in the order of its sorted keys, so that leaves of dicts
with the same keys can be paired. Keys that cannot be compared, and the keys of an OrderedDict, stay in insertion order.
An unflattened dict has its keys in insertion order.

A structure (`TreeDef`) is hashable and compares exactly: its static parts (dict keys and their order, static fields,
the auxiliary data of registered classes) distinguish 1 from 1.0 and True, and 0.0 from -0.0. `alike` ignores the order
of dict keys.
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
