"""Class `Function`: an operation with a user-defined derivative, as in PyTorch.

One class works in three places. On Tensors a call is one node of the tape. On ndarrays it computes without recording.
In traced functions, `forward` is recorded at the call, and `backward` when a derivative is taken.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from tracegrad.errors import TraceError, UnsupportedError, located
from tracegrad.ops import Carrier
from tracegrad.ops.core.op import dispatch_operand
from tracegrad.ops.core.recorders import active_recorder
from tracegrad.torch.autograd.function_ctx import FunctionCtx
from tracegrad.torch.autograd.function_in_trace import call_in_graph
from tracegrad.torch.autograd.function_of_examples import call_by_batching_rule
from tracegrad.torch.autograd.function_on_tape import FunctionNode, call_on_tape
from tracegrad.torch.autograd.function_opaque import is_traced, opaque_backward, opaque_forward
from tracegrad.torch.autograd.once_differentiable import once_differentiable
from tracegrad.torch.modes import no_grad
from tracegrad.torch.tape.recording.recorded_array import Recorded
from tracegrad.torch.tape.tensors.traced_tensor import entered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracegrad.torch.tape.tensors.tensor import Tensor
    from tracegrad.typing import Array


__all__ = ["Function", "FunctionCtx", "InplaceFunction", "inlined", "once_differentiable"]


class Function:
    """Operation with a user-defined derivative: a subclass defines static methods, and is called by `apply`.

    Attributes
    ----------
    generate_vmap_rule : bool
        PyTorch's word that the methods can be called on batched values, which is so without it, too.
    opaque : bool
        False by default: a traced function records the methods. True: the methods run untraced, at each call and at
        each iteration of a loop, on Tensors or ndarrays with values. They may then call SciPy and other libraries.

    Raises
    ------
    RuntimeError
        If `backward` returns a wrong number of cotangents, or a cotangent that does not fit the shape of its argument.

    Notes
    -----
    `forward(ctx, *args)` computes on values that are not recorded. It returns an array, or a tuple of arrays and other
    objects. `backward(ctx, *grads)` receives the cotangents of the outputs, and returns a cotangent or None for each
    argument of `forward`. It is recorded itself under `create_graph`. For forward mode, `jvp(ctx, *tangents)` receives
    the tangents of the arguments, and returns a tangent for each output.

    `ctx` holds the values passed to `ctx.save_for_backward`, and attributes. Alternatively, `forward(*args)` has no
    context, and `setup_context(ctx, inputs, output)` saves the values.

    With `opaque`, `forward` runs once in each call. `backward` receives the context that `forward` has filled, and its
    derivative is refused. Contexts with arrays and numbers only are cheapest. Of contexts with other objects, the last
    16384 that wait for `backward` are held.

    Examples
    --------
    >>> import numpy as np
    >>> from tracegrad import tensor
    >>> class Exp(Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         y = np.exp(x)
    ...         ctx.save_for_backward(y)
    ...         return y
    ...     @staticmethod
    ...     def backward(ctx, grad):
    ...         (y,) = ctx.saved_tensors
    ...         return grad * y
    >>> x = tensor(0.0, requires_grad=True)
    >>> y = Exp.apply(x)
    >>> y.backward()
    >>> y, x.grad
    (tensor(1., grad_fn=<ExpBackward>), tensor(1.))
    """

    # Whether the code runs untraced at each call of a traced function, instead of being recorded.
    opaque = False
    # Whether the first use of `ctx.saved_tensors` frees them.
    clear_saved_tensors_on_access = False
    # As in PyTorch; batches need no rule of the class, because the methods are called on batched values.
    generate_vmap_rule = False
    # Whether equal arguments of an opaque call have equal results. The first argument identifies the function.
    _pure = False
    _backward_cls: Any = FunctionNode
    _context_cls: Any = FunctionCtx

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        name = f"{cls.__name__}Backward"
        # As in PyTorch, the node class belongs to this module, not to the user's.
        members = {"__slots__": (), "__module__": __name__, "_forward_cls": cls}
        cls._backward_cls = type(name, (FunctionNode,), members)
        clears = cls.clear_saved_tensors_on_access
        cls._context_cls = type(name, (FunctionCtx,), {"__module__": __name__, "_clears": clears})

    def __init__(self, *args: object, **kwargs: object) -> None:
        warnings.warn(
            located(
                f"{type(self)} should not be instantiated. Methods on autograd functions are all static, so you should "
                "invoke them on the class itself."
            ),
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise RuntimeError(
            located(
                "Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd "
                "function with static forward method."
            )
        )

    # -- methods that users define -----------------------------------------------------------------------------
    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the outputs.

        Parameters
        ----------
        *args, **kwargs
            Context and arguments of `apply`; the arguments only if there is a `setup_context`.

        Returns
        -------
        array, or tuple of arrays and other objects
            Outputs.
        """
        raise NotImplementedError(located("You must implement the forward function for custom autograd.Function."))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Save on the context the values that `backward` needs, for a `forward` without a context.

        Parameters
        ----------
        ctx : FunctionCtx
            Context.
        inputs : tuple
            Arguments of `forward`.
        output : array or tuple
            Result of `forward`.
        """
        raise NotImplementedError(located("setup_context is not implemented."))

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Compute the cotangents of the arguments. It may also be called `vjp`.

        Parameters
        ----------
        ctx : FunctionCtx
            Context.
        *grad_outputs : array
            Cotangents of the outputs.

        Returns
        -------
        array, None, or tuple of them
            Cotangent of each argument of `forward`; None for zero.
        """
        raise NotImplementedError(
            located(
                "You must implement either the backward or vjp method for your custom autograd.Function to use it with "
                "backward mode AD."
            )
        )

    vjp = backward

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """Compute the tangents of the outputs, for forward mode.

        Parameters
        ----------
        ctx : FunctionCtx
            Context.
        *grad_inputs : array or None
            Tangents of the arguments of `forward`.

        Returns
        -------
        array, or tuple of arrays
            Tangent of each output.
        """
        raise NotImplementedError(
            located("You must implement the jvp function for custom autograd.Function to use it with forward mode AD.")
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        """Compute the outputs for a batch, as a rule for `vmap`. Without it, `forward` is recorded for one example.

        Parameters
        ----------
        info : VmapInfo
            The number of examples `batch_size`, and `randomness`.
        in_dims : tuple of int or None
            The batch dimension of each argument, 0; None for an argument that is not mapped.
        *args
            Arguments of `forward`, as whole batches.

        Returns
        -------
        tuple
            Outputs, and the batch dimension of each; None for an output that is the same for all examples.
        """
        raise NotImplementedError(located("You must implement the vmap staticmethod, or generate_vmap_rule = True."))

    # -- calling -----------------------------------------------------------------------------------------------
    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Compute the outputs, and record the operation if ops on these arguments are recorded.

        Parameters
        ----------
        *args, **kwargs
            Arguments of `forward`.

        Returns
        -------
        Tensor, or tuple of Tensors and other objects
            Outputs.
        """
        if kwargs or cls.setup_context is not Function.setup_context:
            args = _bound(cls, args, kwargs)
        owner = dispatch_operand([x for x in args if isinstance(x, Carrier)])
        if owner is None:
            with no_grad():
                return cls.computed(cls._context_cls(), args)
        if not isinstance(owner, Recorded):
            return call_in_graph(cls, tuple([x.exact() if hasattr(x, "exact") else x for x in args]), owner)
        by_rule = call_by_batching_rule(cls, args) if cls.vmap is not Function.vmap and is_traced(owner) else None
        if by_rule is not None:
            return by_rule[0]
        args = tuple(map(entered, args))
        known = [x for x in args if isinstance(x, Recorded)]
        # Ops recorded in a region are differentiated later, as a graph.
        if is_traced(owner) and owner.array._in_region() and not any(x._requires for x in known):
            return call_in_graph(cls, args, known[0])
        leading: Any = dispatch_operand(known)
        return call_on_tape(cls, args, leading)

    @classmethod
    def computed(cls, context: FunctionCtx, args: tuple[Array, ...]) -> Any:
        """Call `forward`, and fill `context`."""
        context.needs_input_grad = context.needs_input_grad or (False,) * len(args)
        traced = any(map(is_traced, args))
        if cls.opaque and traced:
            return opaque_forward(cls, context, args)
        try:
            if cls.setup_context is Function.setup_context:
                return inlined(cls.forward)(context, *args)
            output = inlined(cls.forward)(*args)
            inlined(cls.setup_context)(context, args, output)
        except (TraceError, UnsupportedError) as error:
            if traced:
                error.add_note(f"with `opaque = True` in the class, {cls.__name__}.forward is called as it is instead")
            raise
        return output

    @classmethod
    def pulled(cls, context: FunctionCtx, cotangents: Sequence[Array]) -> Any:
        """Call `backward`."""
        if hasattr(context, "_opaque"):
            return once_differentiable(opaque_backward)(context, *cotangents)
        rule = cls.backward
        if cls.vjp is not Function.vjp:
            if rule is not Function.backward:
                raise RuntimeError(
                    located(
                        "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only "
                        "implement one of them."
                    )
                )
            rule = cls.vjp
        return inlined(rule)(context, *cotangents)

    @classmethod
    def _batch_rule(cls, *args: object) -> Callable[..., Any] | None:
        """Return the batch rule of an opaque call on these arguments; None: each example is a call."""
        return None

    @classmethod
    def _remember(cls, args: Sequence[object], kinds: object, result: Any) -> None:
        """Store the result of an opaque call on arguments of these kinds, if `_foreseen` can use it for other calls."""

    @classmethod
    def _foreseen(cls, args: Sequence[object], kinds: object) -> object:
        """Return a value with the structure, shapes and dtypes of an opaque call's result, or None if unknown."""
        return None

    @classmethod
    def pushed(cls, context: FunctionCtx, tangents: Sequence[Tensor]) -> Any:
        """Call `jvp`; within it, `ctx.saved_tensors` are the tensors saved by `save_for_forward`, if any."""
        context._for_forward = context.saved_for_forward or None
        try:
            return inlined(cls.jvp)(context, *tangents)
        finally:
            context._for_forward = None


class InplaceFunction(Function):
    """Operation that may update an argument in place, as older PyTorch programs define it.

    Parameters
    ----------
    inplace : bool
        Whether it does. An instance says so; `apply` does not need one.

    Examples
    --------
    >>> issubclass(InplaceFunction, Function)
    True
    """

    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace


def _bound(cls: type[Function], args: tuple[object, ...], kwargs: Mapping[str, object]) -> tuple[Array, ...]:
    """Bind the arguments by position, with defaults for missing ones."""
    separate = cls.setup_context is not Function.setup_context
    signature = inspect.signature(cls.forward)
    try:
        bound = signature.bind(*args, **kwargs) if separate else signature.bind(None, *args, **kwargs)
    except TypeError as error:
        raise TypeError(located(f"forward() {error}")) from None
    bound.apply_defaults()
    return bound.args if separate else bound.args[1:]


def inlined(fn: Callable[..., object]) -> Callable[..., Any]:
    """Return the function itself, or inside a trace the function that records it."""
    builder = active_recorder()
    world = getattr(builder, "world", None)
    return fn if world is None else world.inline(fn)
