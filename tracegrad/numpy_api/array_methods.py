"""Class `ArrayMethods`: operators, methods and attributes of `numpy.ndarray` for a carried value.

The tracer's arrays and the eager Tensors inherit from it. A subclass is a `Carrier` with `shape` and `dtype`, and
defines

- `concrete(query)`: the value as an ndarray, if Python needs a number; `query` names the operation ("bool()");
- `_lift(x)`: an ndarray, NumPy scalar or carrier of a lower level as a carrier of this kind; `_constant(x)`: the same
  for an ndarray without other references;
- `_assign(new)`: makes `new` the value of this object (`x[i] = v`, `x += y`); raises by default;
- `_alias()`: another object for the same value, so that assigning to one does not change the other;
- `_viewed(result, put)`, if `_tracks_views`: `put(base, new)` is `base` with `new` stored at this view of it;
- `_weakened(result)`, if `weak`: the result of an operator on Python numbers only;
- `_concrete_masks`: whether boolean arrays can be used as indices;
- `_immutable_scalars`: whether `+=` on a value without axes makes a new value, as for NumPy's scalars.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tracegrad.avals import LITERALS, is_literal, supported
from tracegrad.cpython.frames import formats_text, frame_at
from tracegrad.errors import DTypeError, ShapeError, TraceError, located, lost
from tracegrad.numpy_api import indexing, joining, products, reductions, registry, selection, shapes, sorting, ufuncs
from tracegrad.numpy_api import memory_layout as memory
from tracegrad.numpy_api.complex import ComplexMethods, in_pairs
from tracegrad.numpy_api.compress import compressed, nonzero
from tracegrad.numpy_api.faces import Faced
from tracegrad.numpy_api.flatiter import Flat
from tracegrad.numpy_api.memory_layout import (
    MemoryMethods,
    RowMajorLayout,
    dtype_of_view,
    in_memory_order,
    in_new_memory,
)
from tracegrad.numpy_api.operands import UFUNC, second_operand, to_dtype
from tracegrad.numpy_api.protocols import decides, is_array_class
from tracegrad.numpy_api.registry import UFUNC_METHODS, UFUNCS, refuse
from tracegrad.ops.core.op import Carrier, DispatchLevel
from tracegrad.ops.elementwise import bits, float_representation
from tracegrad.ops.elementwise import table as elementwise
from tracegrad.ops.shape.linear import stop_gradient
from tracegrad.typing import Array, Casting, DTypeLike, NDArray, Number

if TYPE_CHECKING:
    from types import FrameType


def _weak_pair(x: ArrayMethods, other: object) -> bool:
    return x.weak and (type(other) in LITERALS or getattr(other, "weak", False))


def _number(x: Array | Number) -> Array | Number:
    """Convert a weak boolean to an integer, as Python's arithmetic does."""
    if type(x) is bool:
        return int(x)
    if is_literal(x) or x.dtype.kind != "b":
        return x
    carried: Any = x
    number: Array = carried._weakened(to_dtype(x, "int64"))
    return number


def _binary(op: Callable[..., object], arithmetic: bool = True) -> tuple[Any, Any]:
    """Make an operator and its reflected form."""

    def forward(self: Any, other: Any) -> Any:
        if op is elementwise.multiply and _repeats(self, other):
            return other * int(self)
        args, other = other, second_operand(self, other)
        if other is NotImplemented or other is UFUNC:
            return other if other is NotImplemented else _ufunc_of(op)(self, args)
        if self.weak and _weak_pair(self, other):
            pair = (_number(self), _number(other)) if arithmetic else (self, other)
            return self._weakened(op(*pair))
        return op(self, other)

    def reflected(self: Any, other: Any) -> Any:
        if op is elementwise.multiply and _repeats(self, other):
            return other * int(self)
        args, other = other, second_operand(self, other)
        if other is NotImplemented or other is UFUNC:
            return other if other is NotImplemented else _ufunc_of(op)(args, self)
        if self.weak and _weak_pair(self, other):
            pair = (_number(other), _number(self)) if arithmetic else (other, self)
            return self._weakened(op(*pair))
        return op(other, self)

    return forward, reflected


def _ufunc_of(op: Callable[..., object]) -> np.ufunc:
    """Return the ufunc of an operator."""
    function: np.ufunc = getattr(np, getattr(op, "name", "") or op.__name__.strip("_"))
    return function


def _repeats(x: Array, other: Array | Number) -> bool:
    """Whether `x * other` repeats the sequence `other`: `x` is an integer scalar."""
    return isinstance(other, list | tuple | str) and not x.shape and x._immutable_scalars and x.dtype.kind in "iu"


def _unary(op: Callable[..., Array]) -> Any:
    def apply(self: ArrayMethods) -> Array:
        return self._weakened(op(_number(self))) if self.weak else op(self)

    return apply


def _in_place(op: Callable[..., Array], name: str) -> Any:
    def apply(self: Any, other: Any) -> Any:
        if not self.shape and self._immutable_scalars:
            return NotImplemented
        if isinstance(other, Carrier) and other.level is DispatchLevel.SPAN and self.level is DispatchLevel.VALUE:
            self[...] = op(self, other)  # the result may have another size, which must be known
            return self
        other = second_operand(self, other)
        if other is NotImplemented or other is UFUNC:
            return NotImplemented
        self._update(op(self, other), name)
        return self

    return apply


_MAX_QUERIED = 64  # elements that `tolist` queries one by one; larger arrays are queried as a whole


def _on_function(function: Callable[..., object], doc: str, moves: bool = False) -> Any:
    def method(self: ArrayMethods, *args: object, **kwargs: object) -> object:
        result = function(self, *args, **kwargs)
        return self.preserve_kind(result) if moves else result

    method.__doc__ = doc
    return method


class ArrayMethods(Faced, ComplexMethods, MemoryMethods, RowMajorLayout):
    """Methods of an ndarray, for a carrier."""

    __slots__ = ()
    __array_priority__ = 1000.0
    __hash__ = object.__hash__
    _tracks_views = False
    _concrete_masks = False
    _immutable_scalars = True

    # -- hooks ---------------------------------------------------------------------------------------------
    shape: Any
    dtype: Any
    weak: bool
    preserve_kind: Callable[[Any], Any]  # of `Carrier`

    def concrete(self, query: str) -> NDArray:
        """Return the value as an ndarray."""
        raise NotImplementedError

    def _known(self) -> NDArray | None:
        """Return the value, for an index that determines shapes; None if it may differ between calls."""
        return self.concrete("a boolean index") if self._concrete_masks else None

    def _lift(self, x: object, /) -> Array:
        raise NotImplementedError

    def _constant(self, x: object, /) -> Array:
        return self._lift(x)

    def _assign(self, new: Array) -> None:
        raise refuse("changing this array in place", "make a new one, as in x = x + y")

    def _alias(self) -> Array:
        return self

    def _viewed(self, result: Array, view_update: Callable[[Array, Array], Array]) -> Array:
        return result

    def copied(self) -> Array:
        """Return a copy."""
        return self._alias()

    def _weakened(self, result: Array) -> Array:
        return result

    def _update(self, new: Array, name: str) -> None:
        """Assign the result `new` of the function `name`, which must fit."""
        if new.shape != self.shape:
            raise ShapeError(
                located(f"{name}: non-broadcastable output operand with shape {self.shape} doesn't match {new.shape}")
            )
        if not np.can_cast(new.dtype, self.dtype, "same_kind"):
            ufunc = getattr(np, name, None)
            if isinstance(ufunc, np.ufunc) and not ufunc.signature:  # it raises NumPy's own error
                ufunc(*[np.ones((), new.dtype)] * ufunc.nin, out=np.ones((), self.dtype))
            raise DTypeError(located(f"cannot cast the output of {name} from {new.dtype} to {self.dtype} in place"))
        self._assign(to_dtype(new, self.dtype))

    # -- operators -----------------------------------------------------------------------------------------
    __add__, __radd__ = _binary(elementwise.add)
    __sub__, __rsub__ = _binary(elementwise.subtract)
    __mul__, __rmul__ = _binary(elementwise.multiply)
    __truediv__, __rtruediv__ = _binary(elementwise.divide)
    __floordiv__, __rfloordiv__ = _binary(elementwise.floor_divide)
    __mod__, __rmod__ = _binary(elementwise.remainder)
    __divmod__, __rdivmod__ = _binary(ufuncs.divmod_)
    __pow__, __rpow__ = _binary(ufuncs.power_)
    __matmul__, __rmatmul__ = _binary(ufuncs.matmul)
    __and__, __rand__ = _binary(ufuncs.bitwise_and, arithmetic=False)
    __or__, __ror__ = _binary(ufuncs.bitwise_or, arithmetic=False)
    __xor__, __rxor__ = _binary(ufuncs.bitwise_xor, arithmetic=False)
    __lshift__, __rlshift__ = _binary(bits.left_shift)
    __rshift__, __rrshift__ = _binary(bits.right_shift)
    __lt__, _ = _binary(UFUNCS["less"], arithmetic=False)
    __le__, _ = _binary(UFUNCS["less_equal"], arithmetic=False)
    __gt__, _ = _binary(UFUNCS["greater"], arithmetic=False)
    __ge__, _ = _binary(UFUNCS["greater_equal"], arithmetic=False)
    __eq__, _ = _binary(elementwise.equal, arithmetic=False)
    __ne__, _ = _binary(elementwise.not_equal, arithmetic=False)
    del _

    __neg__ = _unary(elementwise.negative)
    __abs__ = _unary(elementwise.absolute)
    __pos__ = _unary(ufuncs.positive)
    __invert__ = _unary(ufuncs.invert)

    __iadd__ = _in_place(elementwise.add, "add")
    __isub__ = _in_place(elementwise.subtract, "subtract")
    __imul__ = _in_place(elementwise.multiply, "multiply")
    __itruediv__ = _in_place(elementwise.divide, "divide")
    __ifloordiv__ = _in_place(elementwise.floor_divide, "floor_divide")
    __imod__ = _in_place(elementwise.remainder, "remainder")
    __ipow__ = _in_place(ufuncs.power_, "power")
    __imatmul__ = _in_place(ufuncs.matmul, "matmul")
    __iand__ = _in_place(ufuncs.bitwise_and, "bitwise_and")
    __ior__ = _in_place(ufuncs.bitwise_or, "bitwise_or")
    __ixor__ = _in_place(ufuncs.bitwise_xor, "bitwise_xor")
    __ilshift__ = _in_place(bits.left_shift, "left_shift")
    __irshift__ = _in_place(bits.right_shift, "right_shift")

    # -- attributes ----------------------------------------------------------------------------------------
    @property
    def ndim(self) -> int:
        """Return the number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return int(self.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.itemsize * int(math.prod(self.shape))

    @property
    def T(self) -> Array:
        """Return the array with its axes reversed."""
        view: Array = self.preserve_kind(shapes.transpose(self))
        return view

    @property
    def mT(self) -> Array:
        """Return the array with its last two axes exchanged."""
        return shapes.matrix_transpose(self)

    @property
    def flat(self) -> Flat:
        """Return the elements as one axis, read and written by position."""
        return Flat(self)

    @flat.setter
    def flat(self, value: Any) -> None:
        """Overwrite all elements; fewer values are repeated."""
        Flat(self)[:] = np.resize(value, len(Flat(self)))

    # -- Python's protocols --------------------------------------------------------------------------------
    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        length: int = self.shape[0]
        return length

    def __iter__(self) -> Iterator[Array]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        return map(self.__getitem__, range(self.shape[0]))  # lazy, as in NumPy: each step reads one element

    def __getitem__(self, index: object) -> Array:
        item: Array = indexing.getitem(self, index)
        return item

    def __setitem__(self, index: object, value: object) -> None:
        self._assign(indexing.setitem(self, index, value))

    def __contains__(self, value: object) -> bool:
        return bool(reductions.any_(self == value))

    def _scalar(self, query: str) -> Any:
        if self.shape:
            raise TypeError(
                located(
                    f"{query}: only 0-dimensional arrays can be converted to Python scalars, got shape {self.shape}"
                )
            )
        return self.concrete(query).item()

    def __bool__(self) -> bool:
        if math.prod(self.shape) != 1:
            raise ValueError(
                located("The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()")
            )
        return bool(self.concrete("bool()").item())

    def __int__(self) -> int:
        return int(self._scalar("int()"))

    def __float__(self) -> float:
        frame = frame_at(1)
        if not formats_text(frame):
            return float(self._scalar("float()"))
        self._formatted(frame)
        return float(self._scalar("format()"))

    def _formatted(self, frame: FrameType) -> None:
        """Note that the code of this frame formats the number with `%`."""

    def __complex__(self) -> complex:
        return complex(self._scalar("complex()"))

    def __round__(self, ndigits: int | None = None) -> Array | int:
        if self.shape or not self._immutable_scalars:
            raise TypeError(located(f"round: type {type(self).__name__} of shape {self.shape} has no __round__ method"))
        if ndigits is None:
            return int(selection.round(self)) if self.dtype.kind == "f" else int(self)
        return self._weakened(selection.round(self, ndigits)) if self.weak else selection.round(self, ndigits)

    def __index__(self) -> int:
        if self.shape or self.dtype.kind not in "iu":
            raise TypeError("only integer scalar arrays can be converted to a scalar index")
        return int(self.concrete("an index").item())

    def item(self, *args: Array) -> Any:
        """Return the element as a Python number; for larger arrays, the element at the index `args`."""
        if args:
            flat = len(args) == 1 and not isinstance(args[0], tuple)
            picked: Any = shapes.ravel(self)[args[0]] if flat else self[args if len(args) > 1 else args[0]]
            return picked.item()
        if math.prod(self.shape) != 1:
            raise ValueError(located("can only convert an array of size 1 to a Python scalar"))
        return self._python_number("item()")

    def tolist(self) -> Any:
        """Return the elements as nested lists of Python numbers."""
        if not self.shape:
            return self._python_number("tolist()")
        if math.prod(self.shape) > _MAX_QUERIED:
            return self.concrete("tolist()").tolist()
        rows: Any = self
        return [x.tolist() for x in rows]

    def _python_number(self, query: str) -> Any:
        """Return the element of an array that has one, as a Python number."""
        return self.concrete(query).item()

    def __array__(self, dtype: DTypeLike = None, copy: object = None) -> NDArray:
        if self._concrete_masks and self.dtype.kind == "b":
            return np.asarray(self.concrete("a boolean index"), dtype)
        caller = registry.caller_in_scipy()
        query = f"{caller} asks for the elements" if caller else "C code asks for the elements"
        if self._is_differentiated():
            raise lost(query, "of a value that is being differentiated, and an ndarray has no derivative")
        text = f"a {type(self).__name__} cannot become an ndarray without losing its derivative"
        query = f"{query}; " if caller else ""
        raise TraceError(located(f"{query}{text}; take the value on purpose by stop_gradient or detach().numpy()"))

    def _is_differentiated(self) -> bool:
        """Whether an active transform differentiates this value."""
        return False

    def _depends_on_differentiated(self) -> bool:
        """Whether this value depends on a differentiated value, also through ops without a derivative."""
        return False

    @property
    def _value(self) -> Array:
        """The value without a derivative. Packages for autograd unwrap a box themselves: `x = x._value`."""
        if self._is_differentiated():
            return stop_gradient(self)
        raise AttributeError  # the class raises its own error, which names the attribute

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Array | Number, **kwargs: object) -> Any:
        if decides("__array_ufunc__", inputs):
            return NotImplemented
        return registry.dispatch_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Callable[..., object], types: tuple[type, ...], args: Any, kwargs: Any) -> Any:
        if not all(map(is_array_class, types)):
            return NotImplemented
        return registry.dispatch_function(func, args, kwargs)

    # -- methods that differ from the function of that name --------------------------------------------------
    def reshape(self, *shape: int | Sequence[int], order: str = "C", copy: bool | None = None) -> Array:
        """`ndarray.reshape`: sizes, or one tuple of them."""
        sizes: Any = shape[0] if len(shape) == 1 else shape
        result: Array = self.preserve_kind(shapes.reshape(self, sizes, order, copy=copy))
        return result

    def transpose(self, *axes: int | Sequence[int] | None) -> Array:
        """`ndarray.transpose`: axes, or one tuple of them; none reverses."""
        args: Any = axes[0] if len(axes) == 1 and not hasattr(axes[0], "__index__") else (axes or None)
        result: Array = self.preserve_kind(shapes.transpose(self, args))
        return result

    def flatten(self, order: str = "C") -> Array:
        """Return a copy with one axis."""
        return in_new_memory(shapes.ravel(self, order), "C")

    def copy(self, order: str = "C") -> Array:
        """Return a copy."""
        return in_new_memory(self, order)

    def astype(
        self, dtype: DTypeLike, order: str = "K", casting: Casting = "unsafe", subok: bool = True, copy: bool = True
    ) -> Array:
        """Return a copy in another dtype."""
        kind = supported(dtype, "astype")
        if not np.can_cast(self.dtype, kind, casting):
            raise DTypeError(
                located(f"cannot cast array data from {self.dtype} to {kind} according to the rule {casting!r}")
            )
        if kind != self.dtype:
            result: Array = self.preserve_kind(in_memory_order(to_dtype(self, kind), order, self))
            return result
        return in_new_memory(self, order) if copy else memory.with_order(self, order)

    def fill(self, value: Array | Number) -> None:
        """Assign one value to all elements."""
        self[...] = value

    def view(self, *args: object, **kwargs: object) -> Array:
        """Return a view of the elements, or a view of complex numbers as pairs of real ones, or the reverse.

        A view as another dtype of the same size reinterprets the bits, and must not be updated.
        """
        kind = dtype_of_view(self, *args, *kwargs.values())
        if kind.itemsize != self.dtype.itemsize:
            return in_pairs(self, kind)
        if kind == self.dtype:
            same: Array = self.preserve_kind(shapes.reshaped(self, self.shape))
            return same
        if kind.kind == "f" and self.dtype.kind in "iu" and self._depends_on_differentiated():
            raise lost(f"view({kind.name})")
        bits_of: Any = float_representation.reinterpret(self, dtype=kind.name)
        result: Array = self.preserve_kind(bits_of._sealed())
        return result

    def sort(
        self, axis: int = -1, kind: str | None = None, order: str | None = None, *, stable: bool | None = None
    ) -> None:
        """Sort in place."""
        self._update(sorting.sort(self, axis, kind, order, stable=stable), "sort")

    def partition(
        self, kth: int | Sequence[int], axis: int = -1, kind: str = "introselect", order: str | None = None
    ) -> None:
        """Partition in place."""
        self._update(sorting.partition(self, kth, axis, kind, order), "partition")

    # -- methods that are the function of that name ----------------------------------------------------------
    ravel = _on_function(shapes.ravel, "`np.ravel`")
    swapaxes = _on_function(shapes.swapaxes, "`np.swapaxes`")
    squeeze = _on_function(shapes.squeeze, "`np.squeeze`", moves=True)
    sum = _on_function(reductions.sum, "`np.sum`")
    prod = _on_function(reductions.prod, "`np.prod`")
    mean = _on_function(reductions.mean, "`np.mean`")
    var = _on_function(reductions.var, "`np.var`")
    std = _on_function(reductions.std, "`np.std`")
    max = _on_function(reductions.max, "`np.max`")
    min = _on_function(reductions.min, "`np.min`")
    any = _on_function(reductions.any_, "`np.any`")
    all = _on_function(reductions.all_, "`np.all`")
    argmax = _on_function(reductions.argmax, "`np.argmax`")
    argmin = _on_function(reductions.argmin, "`np.argmin`")
    cumsum = _on_function(reductions.cumsum, "`np.cumsum`")
    cumprod = _on_function(reductions.cumprod, "`np.cumprod`")
    clip = _on_function(selection.clip, "`np.clip`")
    round = _on_function(selection.round, "`np.round`")
    take = _on_function(selection.take, "`np.take`")
    diagonal = _on_function(selection.diagonal, "`np.diagonal`")
    trace = _on_function(selection.trace, "`np.trace`")
    repeat = _on_function(joining.repeat, "`np.repeat`")
    argsort = _on_function(sorting.argsort, "`np.argsort`")
    argpartition = _on_function(sorting.argpartition, "`np.argpartition`")
    searchsorted = _on_function(sorting.searchsorted, "`np.searchsorted`")
    dot = _on_function(products.dot, "`np.dot`")
    nonzero = _on_function(nonzero, "`np.nonzero`")
    compress = _on_function(compressed, "`np.compress`")


def _dispatched_method(name: str) -> Callable[..., object]:
    def method(self: ArrayMethods, *args: object, **kwargs: object) -> object:
        return registry.dispatch_function(getattr(np, name), (self, *args), kwargs)

    method.__doc__ = f"`np.{name}`."
    return method


def _refused_method(name: str) -> Callable[..., object]:
    def method(self: ArrayMethods, *args: object, **kwargs: object) -> NoReturn:
        raise refuse(f"ndarray.{name}")

    method.__doc__ = f"Not supported: `ndarray.{name}`."
    return method


for _name in ("byteswap", "dump", "dumps", "getfield", "resize", "setfield", "setflags", "to_device", "tofile"):
    setattr(ArrayMethods, _name, _refused_method(_name))
for _name in ("choose", "put"):
    setattr(ArrayMethods, _name, _dispatched_method(_name))


UFUNC_METHODS["add", "at"] = indexing.add_at
UFUNC_METHODS["subtract", "at"] = lambda x, index, value: indexing.add_at(x, index, value, -1)
