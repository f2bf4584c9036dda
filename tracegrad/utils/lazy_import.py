"""Lazy imports: names of a package that are imported at their first use, and second names of modules.

Every process pays for `import tracegrad`, so it imports no more than a gradient of a NumPy function needs. The
`__getattr__` that `names` makes finds all other names of the package (PEP 562).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def names(
    namespace: dict[str, Any],
    modules: Mapping[str, str],
    members: Mapping[str, str],
    others: str,
    absent: Mapping[str, str],
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make `__getattr__` and `__dir__` of the package with this namespace.

    `modules` maps names to modules, which `import` finds by these names too, with their contents. `members` maps names
    to the modules that define them. All other names are in `NAMES` of the module `others`. `absent` has modules that
    users may look for, and what there is in their place. The package's `__all__` becomes its present names, and those
    of `others`.
    """
    package, exported = namespace["__name__"], namespace.pop("__all__")
    aliases = {f"{package}.{name}": real for name, real in modules.items()}
    importer = _AliasImporter(
        {name: real for name, real in aliases.items() if name != real},
        {f"{package}.{name}": text for name, text in absent.items()},
    )
    sys.meta_path.insert(0, importer)

    def public() -> list[str]:
        return [*exported, *(name for name in import_module(others).NAMES if name not in exported)]

    def find(name: str) -> Any:
        if name in modules:
            return import_module(modules[name])
        if name in members:
            return getattr(import_module(members[name]), name)
        if name in absent:
            raise AttributeError(f"{package} has no {name!r}: {absent[name]}", name=name)
        if name == "__all__":
            return public()
        if name.startswith("__") or name not in import_module(others).NAMES:
            raise AttributeError(f"{package} has no {name!r}{_similar(name, public)}", name=name)
        return import_module(others).NAMES[name]

    def get(name: str) -> Any:
        value = namespace[name] = find(name)
        return value

    return get, lambda: sorted({*namespace, *public()})


def mirrored(namespace: dict[str, object], real: str, attribute: str = "") -> tuple[Callable[..., object], ...]:
    """Make `__getattr__` and `__dir__` of a module that mirrors the names of the module `real`.

    `real` may also be an attribute of a module. It is imported at the first use; the module's own definitions come
    first.
    """
    package = namespace["__name__"]

    def mirror() -> object:
        return getattr(import_module(real), attribute) if attribute else import_module(real)

    def public() -> list[str]:
        module = mirror()
        defined = [name for name in namespace if not name.startswith("_")]
        exported = getattr(module, "__all__", None) or dir(module)
        return sorted({*defined, *(name for name in exported if not name.startswith("_"))})

    def get(name: str) -> Any:
        if name == "__all__":
            return public()
        if name.startswith("__") and name != "__version__":
            raise AttributeError(f"{package} has no {name!r}", name=name)
        value = namespace[name] = getattr(mirror(), name)
        return value

    return get, lambda: sorted({*namespace, *public()})


def second_name(name: str, real: str) -> None:
    """Give the package `real` a second import name; RuntimeError if another module has that name."""
    existing = sys.modules.get(name)
    if existing is not None and existing is not sys.modules.get(real):
        raise RuntimeError(f"{name} is imported already, from {getattr(existing, '__file__', None) or 'no file'}")
    if existing is None:
        sys.meta_path.insert(0, _AliasImporter({name: real}))


# Names in other packages, and their equivalents here.
_ELSEWHERE = {"njit": "trace", "make_jaxpr": "trace(f).graph", "pmap": "vmap"}


def _similar(name: str, public: Callable[[], list[str]]) -> str:
    if name.startswith("__"):
        return ""
    if name in _ELSEWHERE and _ELSEWHERE[name].split("(")[0] in public():
        return f"; it is {_ELSEWHERE[name]} here"
    near = [known for known in public() if name.lower() in known.lower() or known.lower() in name.lower()]
    return f"; similar names are {', '.join(near[:8])}" if near else ""


class _AliasImporter(MetaPathFinder, Loader):
    """Importer of the modules in `real`, and of their contents, by second names: the same modules, not copies."""

    def __init__(self, real: dict[str, str], absent: dict[str, str] | None = None):
        self.real, self.absent = real, absent or {}

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if fullname in self.absent:
            raise ModuleNotFoundError(f"No module named {fullname!r}: {self.absent[fullname]}", name=fullname)
        known = any(fullname == name or fullname.startswith(f"{name}.") for name in self.real)
        return ModuleSpec(fullname, self) if known else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        name = next(name for name in self.real if spec.name == name or spec.name.startswith(f"{name}."))
        real = self.real[name] + spec.name[len(name) :]
        module = import_module(real)
        # The submodules are registered here. Otherwise their import would bind their names in the package again, where
        # a name may already be a function.
        for inside, result in list(sys.modules.items()):
            if inside.startswith(f"{real}."):
                sys.modules.setdefault(spec.name + inside[len(real) :], result)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The module has already run. The import system has replaced its specification by the one of the second name.
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state
