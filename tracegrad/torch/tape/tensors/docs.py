"""Table of the parameters of functions that make Tensors or ask for dtypes, for their docstrings."""

from __future__ import annotations

from tracegrad.utils.doc_table import DocTable

_PARAMETERS = """
col : int | Number of columns.
count : Tensor or ndarray | Numbers of trials, floats.
offset : int | Number of the diagonal; 0 is the main diagonal, and positive numbers are above it.
prob : Tensor or ndarray | Probabilities of a success.
base : float | Base of the powers.
copy : bool | True: the memory is not shared. False: it must be shared.
data : array_like | Number, nested sequence of numbers or Tensors, ndarray or Tensor.
device : str or device | Device, which is "cpu".
dtype : dtype | Dtype of the result.
edgeitems : int | Number of elements at each end of an axis that is shortened.
end : float | End.
ext_tensor : object | Object with `__dlpack__`.
fill_value : number | Value.
from_ : dtype or Tensor | First dtype.
generator : Generator | Source of random numbers; by default the default generator.
high : int | Upper bound, which is excluded.
input : Tensor or ndarray | Tensor whose shape and dtype the result has.
linewidth : int | Characters of a line.
low : int | Lower bound; 0 if only one bound is passed.
m : int | Number of columns; by default `n`.
mean : float or Tensor | Mean.
n : int | Number.
ndarray : ndarray | Array whose memory is shared.
buffer : bytearray or other buffer | Memory.
frombuffer.count : int | Number of elements; -1 for all.
frombuffer.offset : int | Place of the first element, in bytes.
scalar_tensor.s : number | Value.
new_state : Tensor | Result of `get_rng_state`.
num_samples : int | Number of indices.
obj : object | Object.
options : object | Other options of the function without `_like`.
p : float | Probability.
pin_memory : bool | Without effect.
precision : int | Decimals of a float.
profile : {"default", "short", "full"} | Set of options.
replacement : bool | Whether an index may be drawn more than once.
requires_grad : bool | Whether operations on the Tensor are recorded. It needs a floating or complex dtype.
row : int | Number of rows.
sci_mode : bool | Whether floats are in scientific notation; by default as the values require.
seed : int | Seed.
size : tuple of int | Shape.
sizes : int or tuple of int | Shape, as numbers or as one tuple.
start : float | First number.
std : float or Tensor | Standard deviation.
step : float | Distance of the numbers.
steps : int | Number of numbers.
threshold : float | Number of elements that are shown in full.
to : dtype | Second dtype.
type : str or int | Type, such as "cpu", also with an index, such as "cpu:0". A number is the index of a CUDA device.
type1 type2 : dtype | Dtype.
xs : Tensor, ndarray, dtype or number | Operands.

bernoulli.input : Tensor or ndarray | Probabilities.
multinomial.input : Tensor or ndarray | Weights, (n,) or (rows, n).
is_complex.input is_floating_point.input : Tensor, ndarray or dtype | Operand.
normal.size : tuple of int | Shape, if mean and standard deviation are numbers.
set_default_dtype.dtype : dtype | Floating dtype.
finfo.dtype : dtype | Floating or complex dtype; by default the default dtype.
iinfo.dtype : dtype | Integer dtype.
asarray.obj : array_like | Numbers.
asarray.requires_grad : bool | False: the result has no history.
"""

_RESULTS = """
is_tensor is_complex is_floating_point can_cast : bool | Answer.
manual_seed : Generator | Default generator.
seed initial_seed : int | Seed.
get_rng_state : Tensor of uint8 | State.
get_default_dtype result_type promote_types : dtype | Dtype.
finfo : numpy.finfo | Limits.
iinfo : numpy.iinfo | Limits.
get_printoptions : dict | Options by name.
set_default_dtype set_printoptions set_rng_state : None | Nothing.
arange as_tensor asarray empty empty_like eye from_dlpack from_numpy full full_like : Tensor | New Tensor.
frombuffer scalar_tensor : Tensor | New Tensor.
linspace logspace ones ones_like tensor zeros zeros_like : Tensor | New Tensor.
bernoulli multinomial normal rand rand_like randint randint_like randn randn_like randperm : Tensor | New Tensor.
"""

TENSOR_DOCS = DocTable(_PARAMETERS, _RESULTS)
