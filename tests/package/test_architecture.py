"""The shape of the program, read from its source: layers, sizes, docstrings, and what an import costs."""

from __future__ import annotations

import ast
import opcode
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from layers import LAYERS, LAYERS_WITHIN
from paths import ROOT

from tracegrad.trace.builder.hooks import TraceHooks

PACKAGE = ROOT / "tracegrad"


# How many modules a package has beside its own packages.
MOST_MODULES = 24

# What may be imported inside a function; nothing else is, but for modules of the package that `import tracegrad` is to
# leave out (`test_import.py`).
LAZY = {"numba", "llvmlite", "scipy", "scipy_openblas32", "platformdirs", "dask", "cloudpickle", "tracegrad"}

# What `import tracegrad` must not import.
SLOW = {"numba", "scipy", "scipy_openblas32"}

# Layers whose modules have no `__all__` of names that they define: a name without an underscore is for other modules.
INTERNAL = {"analysis", "codegen", "cpython", "llvmir", "numpy_api", "passes", "reroll", "runtime", "target", "trace"}

MOST_LINES = 540  # about 500, as the formatter lays them out


class Import(NamedTuple):
    """One imported name: the module it is or comes from, where, and whether inside a function."""

    module: str
    line: int
    late: bool


@cache
def modules() -> dict[str, Path]:
    """The modules of the package, by dotted name."""
    table = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        table[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return table


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def names_imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    assert isinstance(node, ast.ImportFrom)
    assert not node.level, f"relative import in line {node.lineno}"
    base = node.module or ""
    inside = [f"{base}.{alias.name}" for alias in node.names]
    return [name if name in modules() else base for name in inside]


def guarded(node: ast.AST) -> bool:
    """Whether `node` is `if TYPE_CHECKING:`."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imports(node: ast.AST, late: bool = False, typing: bool = True) -> Iterator[Import]:
    """The imports below `node`, with those for the type checker or without."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield from (Import(name, child.lineno, late) for name in names_imported(child))
        elif not isinstance(child, ast.expr) and (typing or not guarded(child)):
            in_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from imports(child, late or in_function, typing)


def layer(module: str) -> str:
    """The layer of a module of the package: the first name below `tracegrad`, which is itself the top.

    The folders of PyTorch's face are layers of their own.
    """
    parts = module.split(".")
    return ".".join(parts[1 : 3 if parts[1:2] == ["torch"] else 2]) or module


def rank(module: str) -> int:
    return LAYERS.index(layer(module))


def is_own(module: str) -> bool:
    return module.split(".")[0] == "tracegrad"


@cache
def all_imports(typing: bool = True) -> list[tuple[str, Import]]:
    """Each import of the package, with the module that it stands in."""
    return [(module, x) for module, path in modules().items() for x in imports(parsed(path), typing=typing)]


def told(module: str, found: Import) -> str:
    return f"{module}, line {found.line}, imports {found.module}"


def test_each_module_has_a_layer() -> None:
    assert [module for module in modules() if layer(module) not in LAYERS] == []


def test_imports_go_down_only() -> None:
    own = [(module, result) for module, result in all_imports() if is_own(result.module)]
    assert [told(*each) for each in own if rank(each[1].module) > rank(each[0])] == []


def test_own_modules_that_are_imported_exist() -> None:
    own = [(module, result) for module, result in all_imports() if is_own(result.module)]
    assert [told(*each) for each in own if each[1].module not in modules()] == []


def test_only_slow_or_optional_dependencies_are_imported_inside_functions() -> None:
    late = [(module, result) for module, result in all_imports() if result.late]
    assert [told(*each) for each in late if each[1].module.split(".")[0] not in LAZY] == []


def test_slow_dependencies_are_imported_inside_functions_only() -> None:
    early = [(module, result) for module, result in all_imports(typing=False) if not result.late]
    assert [told(*each) for each in early if each[1].module.split(".")[0] in SLOW] == []


@pytest.mark.parametrize("folder", LAYERS_WITHIN)
def test_packages_within_a_folder_import_those_below_only(folder: str) -> None:
    order = [f"tracegrad.{folder}.{name}" for name in LAYERS_WITHIN[folder].split()]
    packages = {str(path.parent.relative_to(PACKAGE.parent)).replace("/", ".") for path in modules().values()}
    assert {name for name in packages if name.rpartition(".")[0] == f"tracegrad.{folder}"} == set(order)

    def place(module: str) -> int | None:
        return next((k for k, name in enumerate(order) if f"{module}.".startswith(f"{name}.")), None)

    inside = [(module, result) for module, result in all_imports() if None not in (place(module), place(result.module))]
    assert [told(*each) for each in inside if place(each[1].module) > place(each[0])] == []  # type: ignore[operator]


def test_packages_have_few_modules() -> None:
    count = Counter(path.parent for path in modules().values() if path.name != "__init__.py")
    assert {path: n for path, n in count.items() if n > MOST_MODULES and path != PACKAGE} == {}


def test_no_modules_import_each_other_in_a_circle() -> None:
    edges: dict[str, set[str]] = {module: set() for module in modules()}
    for module, result in all_imports(typing=False):
        if is_own(result.module) and not result.late:
            edges[module].add(result.module)
    # Taking away, again and again, what imports nothing that is left leaves the circles, and what leads to them.
    while ready := [module for module, imported in edges.items() if not imported & set(edges) - {module}]:
        for module in ready:
            del edges[module]
    assert {module: sorted(imported & set(edges)) for module, imported in edges.items()} == {}


def test_each_module_is_short_enough_for_a_reader() -> None:
    sizes = {module: len(path.read_text(encoding="utf-8").splitlines()) for module, path in modules().items()}
    assert {module: lines for module, lines in sizes.items() if lines > MOST_LINES} == {}


def test_each_module_has_a_docstring() -> None:
    assert [module for module, path in modules().items() if not ast.get_docstring(parsed(path))] == []


def exported(tree: ast.Module) -> set[str]:
    """The names in `__all__`, if it is a list."""
    assigned = [node for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.List)]
    found = [node.value.elts for node in assigned if any(getattr(x, "id", "") == "__all__" for x in node.targets)]
    return {name.value for names in found for name in names}


def test_internal_modules_do_not_list_their_own_names_twice() -> None:
    own = [module for module in modules() if layer(module).split(".")[0] in INTERNAL]
    trees = {module: parsed(modules()[module]) for module in own if modules()[module].name != "__init__.py"}
    assert len(trees) > 300
    handed_on = {
        module: {
            name.asname or name.name for node in tree.body if isinstance(node, ast.ImportFrom) for name in node.names
        }
        for module, tree in trees.items()
    }
    assert [module for module, tree in trees.items() if exported(tree) and not exported(tree) & handed_on[module]] == []


def test_importing_tracegrad_imports_no_slow_dependency() -> None:
    program = f"import sys, tracegrad; print(*sorted(set(sys.modules) & {SLOW | {'numpy'}}))"
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=PACKAGE.parent, capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["numpy"]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import numpy", [("numpy", False)]),
        ("from tracegrad import errors, tree", [("tracegrad.errors", False), ("tracegrad.tree", False)]),
        ("from tracegrad import grad", [("tracegrad", False)]),
        ("from tracegrad.errors import ShapeError", [("tracegrad.errors", False)]),
        ("def f():\n if x:\n  import numba.core", [("numba.core", True)]),
        ("class C:\n def f(self):\n  from scipy import special", [("scipy", True)]),
        ("if TYPE_CHECKING:\n import numba", []),
        ("try:\n import numba\nexcept ImportError:\n pass", [("numba", False)]),
    ],
)
def test_the_reader_of_imports_sees_them_all(source: str, expected: list[tuple[str, bool]]) -> None:
    assert [(f.module, f.late) for f in imports(ast.parse(source), typing=False)] == expected


# -- a class or a module is whole where it is defined ----------------------------------------------------------------
# The tables of functions that higher modules define, and the decorator that adds methods to Tensors.
HOOK_TABLES = {"tracegrad.trace.builder.hooks.HOOKS"}
MAKES_METHODS = "tracegrad.torch.tape.tensors.factories"


def own_names(tree: ast.AST) -> dict[str, str]:
    """The names in a module of modules of the package, and of what it imports from them."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and is_own(node.module or ""):
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


def assigned_at_import(node: ast.AST) -> Iterator[ast.Attribute]:
    """The attributes that a module assigns outside of functions, as `x.name = ...` or by `setattr(x, "name", ...)`."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                continue
            case ast.Attribute(ctx=ast.Store()):
                yield child
            case ast.Call(func=ast.Name("setattr"), args=[x, name, _]):
                yield ast.Attribute(x, ast.unparse(name))
        yield from assigned_at_import(child)


def assigned_elsewhere(tree: ast.AST) -> list[str]:
    """What a module assigns at import to classes and modules that it imports from the package."""
    names, results = own_names(tree), []
    for attribute in assigned_at_import(tree):
        root: ast.expr = attribute.value
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and names.get(root.id, "") not in {"", *HOOK_TABLES}:
            results.append(ast.unparse(attribute))
    return results


def test_no_module_assigns_to_what_another_module_defines() -> None:
    table = {module: assigned_elsewhere(parsed(path)) for module, path in modules().items()}
    assert {module: names for module, names in table.items() if names} == {}


def test_only_one_function_adds_methods_to_a_class_of_another_module() -> None:
    table = {}
    for module, path in modules().items():
        tree, names = parsed(path), own_names(parsed(path))
        table[module] = [
            ast.unparse(node)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr"
            if isinstance(node.args[0], ast.Name) and node.args[0].id in names
        ]
    assert {module for module, calls in table.items() if calls} == {MAKES_METHODS}


def test_each_hook_is_assigned_once() -> None:
    assigned = Counter(
        node.attr
        for path in modules().values()
        for node in assigned_at_import(parsed(path))
        if isinstance(node.value, ast.Name) and node.value.id == "HOOKS"
    )
    assert assigned == dict.fromkeys(TraceHooks.__slots__, 1)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from tracegrad.avals import Aval\nAval.kind = 1", ["Aval.kind"]),
        ("from tracegrad.numpy_api import registry\nregistry.OTHERS = f", ["registry.OTHERS"]),
        ("from tracegrad.avals import Aval\nfor name in names: setattr(Aval, name, f)", ["Aval.name"]),
        ("from tracegrad.avals import Aval\nAval.a, Aval.b.c = 1, 2", ["Aval.a", "Aval.b.c"]),
        ("from tracegrad.avals import Aval\nclass A: pass\nA.kind = Aval.kind", []),
        ("from tracegrad.avals import Aval\ndef f(): Aval.count = 2", []),
        ("from tracegrad.trace.builder.hooks import HOOKS\nHOOKS.roll = f", []),
        ("import numpy as np\nnp.roll = 1", []),
    ],
)
def test_the_reader_of_assignments_sees_them_all(source: str, expected: list[str]) -> None:
    assert assigned_elsewhere(ast.parse(source)) == expected


# -- ops are asked for their form, not for their name ----------------------------------------------------------------
# The names that tell an op or a node from others in the source, and what says what PyTorch calls them.
HANDLES_OPS = {"GraphNode", "Node", "Op", "TABLE", "handler", "producer"}
LABELS = {"tracegrad.torch.tape.recording.node_names"}
# What else has a name in modules that handle ops.
NAMED = {"entry", "f", "first", "function", "p", "s", "saved", "self"}


def asked(tree: ast.AST) -> Iterator[ast.expr]:
    """The expressions that are compared, matched, or looked up in a table."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, comparators=rest):
                yield from (part for side in (left, *rest) for part in getattr(side, "elts", [side]))
            case ast.Subscript(slice=key, ctx=ast.Load()) | ast.Match(subject=key):
                yield key
            case ast.Call(func=ast.Attribute(attr="get"), args=[key, *_]):
                yield key
            case ast.Call(func=ast.Attribute(attr="startswith" | "endswith", value=key)):
                yield key


def names_asked(tree: ast.AST) -> list[str]:
    """The expressions `op.name` and `node.op.kind`, whatever the op is called there, that something is decided by."""
    attributes = [x for x in asked(tree) if isinstance(x, ast.Attribute) and x.attr in ("name", "kind")]
    return [
        ast.unparse(x)
        for x in attributes
        if (x.attr == "name" and ast.unparse(x.value) not in NAMED) or ast.unparse(x.value).split(".")[-1] == "op"
        if not ast.unparse(x.value).endswith("dtype")
    ]


def test_nothing_above_the_table_asks_for_the_name_or_kind_of_an_op() -> None:
    table = {}
    for module, path in modules().items():
        tree = parsed(path)
        known = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
        if layer(module) != "ops" and module not in LABELS and known & HANDLES_OPS:
            table[module] = names_asked(tree)
    assert "tracegrad.codegen.lower.form_rules" in table
    assert {module: names for module, names in table.items() if names} == {}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("if op.name == 'pad': pass", ["op.name"]),
        ("x = node.op.kind in ('view', 'reshape')", ["node.op.kind"]),
        ("x = 'pad' != producer(x).name", ["producer(x).name"]),
        ("match node.name:\n case 'pad': pass", ["node.name"]),
        ("rule = RULES.get(op.name)", ["op.name"]),
        ("rule = RULES[x.name]", ["x.name"]),
        ("if (op.name, n) == ('pad', 2): pass", ["op.name"]),
        ("if op.name.startswith('reduce_'): pass", ["op.name"]),
        ("if op is pad or isinstance(op.form, Fold): pass", []),
        ("text = f'{op.name} of {x.dtype.kind}'", []),
        ("if x.dtype.kind == 'f': pass", []),
    ],
)
def test_the_reader_of_names_sees_what_decides(source: str, expected: list[str]) -> None:
    assert names_asked(ast.parse(source)) == expected


# -- what knows CPython's insides ----------------------------------------------------------------------------------
# Opcodes, offsets in code, frames, reference counts, and the memory of objects are known here only.
FENCED = ("tracegrad.cpython", "tracegrad.trace.bytecode", "tracegrad.trace.rewriting")
INSIDES = {
    "dis", "opcode", "getrefcount", "_getframe", "f_lasti", "f_locals", "tb_lasti", "co_code", "co_exceptiontable",
    "co_linetable", "co_positions", "co_lines", "opname", "opmap", "stack_effect", "from_address", "__basicsize__",
    "__dictoffset__", "__itemsize__", "PyFrame_LocalsToFast",
}  # fmt: skip
OPCODES = {name for name in opcode.opmap if "_" in name}
# What passes pointers to machine code, by `ctypes`.
FOREIGN = {
    "tracegrad.numba_export", "tracegrad.platform.libraries", "tracegrad.runtime.blas.library",
    "tracegrad.runtime.compile.jit", "tracegrad.runtime.diagnostics.step_timer",
    "tracegrad.runtime.execution.entry_callable", "tracegrad.runtime.execution.image",
    "tracegrad.runtime.execution.numpy_sort_addresses", "tracegrad.runtime.execution.safepoints",
    "tracegrad.runtime.memory.allocator", "tracegrad.runtime.threads.pool", "tracegrad.solvers.blas_threads",
}  # fmt: skip


def insides(tree: ast.AST) -> Iterator[str]:
    """What a module says of CPython's insides, with lines."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Attribute):
            names = [node.attr]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [*(x.name for x in node.names), getattr(node, "module", None) or ""]
        elif isinstance(node, ast.Constant) and node.value in OPCODES:
            names = [str(node.value)]
        yield from [f"{node.lineno}: {name}" for name in names if name in INSIDES or name in OPCODES]


def is_in(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def test_only_fenced_packages_know_the_insides_of_cpython() -> None:
    outside = {name: path for name, path in modules().items() if not is_in(name, FENCED)}
    told = {name: list(insides(parsed(path))) for name, path in outside.items()}
    assert {name: x for name, x in told.items() if x} == {}


def test_only_listed_modules_call_foreign_functions() -> None:
    users = {name for name, found in all_imports() if found.module.partition(".")[0] == "ctypes"}
    assert {name for name in users if not is_in(name, FENCED)} == FOREIGN


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import dis\n", ["1: dis"]),
        ("from opcode import opmap\n", ["1: opmap", "1: opcode"]),
        ("x = sys.getrefcount(y)\n", ["1: getrefcount"]),
        ("if x.name == 'LOAD_CONST':\n    pass\n", ["1: LOAD_CONST"]),
        ("x = frame.f_back\n", []),
    ],
)
def test_the_reader_of_insides_sees_them_all(source: str, expected: list[str]) -> None:
    assert list(insides(ast.parse(source))) == expected
