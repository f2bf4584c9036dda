"""The stubs of the package, which tell editors and type checkers what its modules find when they are asked for it.

They are made from the package; `--update-golden` rewrites them. What mypy makes of them is in `test_typed_program.py`.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.torch.exports import NAMES
from tracegrad.torch.functions.core.out import with_out
from tracegrad.torch.functions.core.registry import METHODS
from tracegrad.torch.tape.tensors import factories, ranges

PACKAGE = Path(tg.__file__).parent

HEAD = '''"""What `{}` offers, for editors and type checkers: made from the package by `tests/package/test_stub.py`."""

from builtins import bool as _bool, float as _float, int as _int
from collections.abc import Callable as _Callable, Iterable as _Iterable, Iterator as _Iterator
from collections.abc import Mapping as _Mapping, Sequence as _Sequence
from typing import Any

import numpy as _np

from tracegrad.tensor_dtype import TensorDType as _TensorDType
'''

# The module whose stub has the signatures of the methods that the registry gives to Tensor.
REGISTERED = "tracegrad.torch.functions.registered_methods"

# Modules of PyTorch that have a second name, and whether their functions are written out: type checkers do not see
# the names that are made as the module runs.
SECOND = {
    "accelerator": False,
    "amp": False,
    "array_api": True,
    "autograd": False,
    "autograd.forward_ad": False,
    "autograd.functional": False,
    "autograd.graph": False,
    "cuda": False,
    "cuda.amp": False,
    "distributions": False,
    "distributions.constraints": False,
    "distributions.kl": False,
    "distributions.transforms": False,
    "distributions.utils": False,
    "fft": False,
    "linalg": True,
    "masked": True,
    "multiprocessing": False,
    "nn": True,
    "nn.functional": True,
    "nn.init": False,
    "nn.modules": False,
    "nn.utils": False,
    "nn.utils.parametrizations": False,
    "nn.utils.parametrize": False,
    "nn.utils.prune": False,
    "nn.utils.rnn": False,
    "optim": False,
    "optim.lr_scheduler": False,
    "optim.schedules": False,
    "optim.swa_utils": False,
    "serialization": False,
    "signal": False,
    "signal.windows": False,
    "special": True,
    "testing": False,
    "utils.checkpoint": False,
    "utils.data": False,
}

# What is a Tensor whatever it is made from. PyTorch's other names give arrays for arrays.
DRAWN = {"binomial", "poisson", "rand", "randn", "randint", "randperm"}
TENSORS = {*factories.__all__, *ranges.__all__, *DRAWN} - {"is_tensor"}

# Methods that may return several Tensors, or something else than a Tensor; the others return one.
NOT_ONE_TENSOR = {
    *("aminmax", "cummax", "cummin", "frexp", "histogram", "histogramdd", "kthvalue", "max", "median", "min", "mode"),
    *("nanmedian", "nonzero", "qr", "slogdet", "sort", "svd", "topk", "type", "unique"),
}

Parameter = inspect.Parameter

# Some of the names that stubs define are those of built-in types.
WORDS = {
    "int": "_int",
    "bool": "_bool",
    "float": "_float",
    "Callable": "_Callable",
    "Iterable": "_Iterable",
    "Iterator": "_Iterator",
    "Mapping": "_Mapping",
    "Sequence": "_Sequence",
    "Shape": "tuple[_int, ...]",
    "DType": "_np.dtype[Any] | _TensorDType",
    "DeviceLike": "str | _int | None",
    "Sizes": "_int | _Sequence[_int]",
    "NDArray": "_np.ndarray[Any, Any]",
    "Op": "Any",
    "Buffer": "Any",
    "Function": "Any",
    "np.": "_np.",
}


class Text(str):
    """What `str(signature)` has as it is."""

    __repr__ = str.__str__


# What takes or returns an array accepts what users have, and gives what they had: the stubs leave it open.
OPEN = r"\b(Array|ArrayLike|Axes|DTypeLike|Number|Operand)\b( \| \w+)*"


def annotation(text: Any) -> Text:
    words = r"\bnp\.|(?<![\w.])\w+"
    text = "Any" if text is Parameter.empty else re.sub(OPEN, "Any", text)
    return Text(re.sub(words, lambda word: WORDS.get(word[0], word[0]), text))


def definition(name: str, fn: Callable[..., Any], gives: str | None = None) -> str:
    """`def name(...)`, with the parameters of `fn`, but those for its own use."""
    signature = inspect.signature(fn)
    results = [each for each in signature.parameters.values() if each.name[0] != "_"]
    if fn.__code__.co_filename == with_out.__code__.co_filename and all(each.name != "out" for each in results):
        at = next((i for i, each in enumerate(results) if each.kind is Parameter.VAR_KEYWORD), len(results))
        results.insert(at, Parameter("out", Parameter.KEYWORD_ONLY, default=None))
    parameters = [
        each.replace(
            annotation=annotation(each.annotation),
            default=each.default if each.default is Parameter.empty else Text("..."),
        )
        for each in results
    ]
    returns = Text(gives or annotation(signature.return_annotation))
    return f"def {name}{signature.replace(parameters=parameters, return_annotation=returns)}: ..."


# -- the parts of the stub --------------------------------------------------------------------------------------------
def imported() -> Iterator[str]:
    """The names that `reroll.py` imports, also where only type checkers see it."""
    names = set(tg.__all__)
    for node in ast.walk(ast.parse((PACKAGE / "__init__.py").read_text())):
        if isinstance(node, ast.ImportFrom):
            for each in node.names:
                if each.name in names and each.name not in {"Tensor", *TENSORS}:
                    where = "tracegrad" if each.name in SECOND else node.module
                    yield f"from {where} import {each.name} as {each.name}"


def other(name: str, value: Any, gives: str | None = None) -> str:
    if isinstance(value, np.dtype):
        return f"{name}: _TensorDType"
    if isinstance(value, type) and value.__name__ != name:  # an import under another name is not exported
        return f"{name} = _{value.__name__}"
    if isinstance(value, type):
        return f"from {value.__module__} import {value.__name__} as {name}"
    if isinstance(value, FunctionType):
        return definition(name, value, gives)
    if isinstance(value, ModuleType):
        return f"from {value.__name__.replace('.torch', '')} import {name} as {name}".replace(
            f".{name} import", " import"
        )
    kind = type(value).__name__
    kinds = {
        "dict": "dict[str, _TensorDType]",
        "float": "_float",
        "NoneType": "None",
        "SimpleNamespace": "Any",
        "TensorDType": "_TensorDType",
    }
    return f"{name}: {kinds.get(kind, kind)}"


def written(cls: type) -> dict[str, Any]:
    """The names that the source of a class and its bases defines: what type checkers know without the stub."""
    known = {}
    for base in cls.__mro__[-2::-1]:
        for node in ast.parse(dedent(inspect.getsource(base))).body[0].body:  # type: ignore[attr-defined]
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
            known |= {getattr(each, "id", getattr(each, "name", None)): node for each in targets}
    return known


def of_method(function: Callable[..., Any], name: str) -> str:
    """What a method returns: a Tensor where its function returns an array, and itself from an update in place."""
    returns = "Self" if name.endswith("_") else str(inspect.signature(function).return_annotation)
    if returns == "Any" and name not in NOT_ONE_TENSOR:
        return Text("Self")
    return annotation(re.sub(r"\b(Array|Tensor)\b", "Self", returns))


def method(name: str, value: Any, known: dict[str, Any]) -> str | None:
    if name in known:
        return None
    if isinstance(value, property):
        return f"@property\n    def {name}(self) -> Any: ..."
    if not isinstance(value, FunctionType):
        return None
    # What has any arguments hands them to the function of that name.
    function = METHODS.get(name, METHODS.get(name.removesuffix("_"), value))
    function = function if "args" in inspect.signature(value).parameters else value
    first, *_ = inspect.signature(function).parameters
    text = definition(name, function, of_method(function, name))
    return re.sub(rf"\(({first}\b(: [^,)]+)?|(?=\*))", "(self", text, count=1).replace("(self*", "(self, *")


def tensor_methods() -> Iterator[str]:
    """The methods that are set while modules of the tape run, for the base class that only the type checker reads."""
    yield "class RegisteredMethods:"
    known = written(tg.Tensor)
    for name in dir(tg.Tensor):
        value = inspect.getattr_static(tg.Tensor, name)
        if not name.startswith("_") and (text := method(name, value, known)):
            yield re.sub(r"\bTensor\b", "Self", f"    {text}")


def package() -> str:
    own = {*imported(), "from tracegrad.torch.tape import Tensor as Tensor"}
    have = {line.split()[-1] for line in own}
    rest = [
        other(name, value, "Tensor" if name in TENSORS else None)
        for name, value in sorted(NAMES.items())
        if name not in have
    ]
    return text_of("tracegrad", sorted(own), ["__version__: str"], rest)


def module(name: str) -> str:
    result = importlib.import_module(f"tracegrad.{name}")
    if not SECOND[name]:
        return f"from tracegrad.torch.{name} import *\n"
    return text_of(f"tracegrad.{name}", [], [], [other(each, getattr(result, each)) for each in sorted(result.__all__)])


def text_of(name: str, imports: list[str], own: list[str], rest: list[str]) -> str:
    imports = [*imports, *(line for line in rest if line.startswith("from "))]
    rest = [line for line in rest if not line.startswith("from ")]
    if name != "tracegrad" and any(re.search(r"\bTensor\b", line) for line in (*own, *rest)):
        imports.append("from tracegrad.torch.tape import Tensor as _Tensor")
        own, rest = ([re.sub(r"\bTensor\b", "_Tensor", line) for line in lines] for lines in (own, rest))
    return "\n".join([HEAD.format(name), *imports, "", *own, "", *rest, ""])


def stubs() -> dict[Path, str]:
    methods = text_of(
        REGISTERED,
        ["from typing import Self", "from tracegrad.torch.functions.core.generator import Generator"],
        [*tensor_methods()],
        [],
    )
    table = {PACKAGE / "__init__.pyi": package(), PACKAGE.parent / f"{REGISTERED.replace('.', '/')}.pyi": methods}
    for name in SECOND:
        path = PACKAGE / name.replace(".", "/")
        table[path / "__init__.pyi" if path.is_dir() else path.with_suffix(".pyi")] = module(name)
    return table


# -- tests ------------------------------------------------------------------------------------------------------------
def test_the_stubs_are_what_the_package_offers(request: pytest.FixtureRequest) -> None:
    result = stubs()
    for path, text in result.items():
        if request.config.getoption("--update-golden"):
            path.write_text(text)
        assert path.read_text() == text
    assert set(PACKAGE.rglob("*.pyi")) == set(result)


def test_the_stub_names_what_the_package_has_and_nothing_else() -> None:
    names: set[str] = set()
    for node in ast.parse((PACKAGE / "__init__.pyi").read_text()).body:
        if isinstance(node, ast.ImportFrom):
            names |= {each.asname or each.name for each in node.names}
        elif isinstance(node, ast.AnnAssign):
            names.add(node.target.id)  # type: ignore[union-attr]
        elif isinstance(node, ast.Assign):
            names |= {each.id for each in node.targets}  # type: ignore[attr-defined]
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
    assert {name for name in names if name[0] != "_"} - {"Any"} == set(tg.__all__)


def test_what_the_stub_calls_a_tensor_is_one() -> None:
    x, size = np.ones(2), (2,)
    arguments: dict[str, tuple[Any, ...]] = {
        **dict.fromkeys(("zeros", "ones", "empty", "rand", "randn"), size),
        **dict.fromkeys(("arange", "eye", "randperm"), (2,)),
        **dict.fromkeys(("linspace", "logspace"), (0, 1, 2)),
        **dict.fromkeys(("tril_indices", "triu_indices"), (2, 2)),
        "binomial": (x, x / 2),
        "full": (size, 1.0),
        "scalar_tensor": (1.0,),
        "full_like": (x, 1.0),
        "randint": (3, size),
    }
    for name in sorted(TENSORS - {"frombuffer"}):
        assert isinstance(getattr(tg, name)(*arguments.get(name, (x,))), tg.Tensor), name
