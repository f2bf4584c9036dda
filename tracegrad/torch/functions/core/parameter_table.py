"""Table of the parameters and results of PyTorch's functions, for their docstrings.

A row `name : type | description` stands for all functions, a row `function.name` for one function.
"""

from __future__ import annotations

from tracegrad.utils.doc_table import DocTable

_PARAMETERS = """
A : Tensor or ndarray | Matrix, or a batch of matrices in the last two dimensions.
B : Tensor or ndarray | Right-hand side: a vector, a matrix, or a batch of them.
L : Tensor or ndarray | Cholesky factor.
N : int | Number of powers.
UPLO : {"L", "U"} | Triangle of the matrix that is read.
a : Tensor or ndarray | First operand.
abs : Tensor or ndarray | Magnitudes.
accumulate : bool | Whether values are added, also at equal indices.
add_zero_attn : bool | Whether keys and values get a row of zeros.
align_corners : bool | Whether the centers of the corners stay in place.
along : int or sequence of int | Dimensions.
alpha : float | Factor.
anchor : Tensor or ndarray | Anchors, (N, D).
angle : Tensor or ndarray | Angles in radians.
antialias : bool | Whether the kernel covers all inputs between two outputs.
append : Tensor or ndarray | Values behind the input along `dim`.
approximate : {"none", "tanh"} | Approximation of the distribution function.
as_tuple : bool | Whether the result is a tuple with a vector for each dimension.
assume_unique : bool | Without effect on the result.
atol : float | Absolute tolerance.
attn_mask : Tensor or ndarray | Mask of the weights.
average_attn_weights : bool | Whether the weights are averaged over the heads.
aweights : Tensor or ndarray | Weights of the observations.
axis0 axis1 : int | Dimension.
b : Tensor or ndarray | Second operand.
batch1 batch2 : Tensor or ndarray | Batch of matrices.
beta : float | Factor of `input`.
bias : Tensor or ndarray | Bias, with an element for each output channel.
bias_k bias_v : Tensor or ndarray | Row that is appended to the projected keys, or values.
bins : int or Tensor or ndarray | Number of bins, or their edges.
blank : int | Class of the blank.
boundaries : Tensor or ndarray | Ascending boundaries.
ceil_mode : bool | Whether the output size is rounded up.
chunks : int | Number of parts.
compute_mode : str | Without effect on the result.
compute_uv : bool | Whether the singular vectors are computed.
condition : Tensor or ndarray | Booleans.
correction : int | Difference of the divisor and the number of elements.
count_include_pad : bool | Whether the zeros of the padding count in the mean.
decimals : int | Number of digits after the point.
delta : float | Distance at which the loss becomes linear.
density : bool | Whether the result is a probability density.
descending : bool | Whether the order is descending.
destination : int or tuple of int | New places of the dimensions.
diagonal : int | Number of the diagonal; 0 is the main diagonal, and positive numbers are above it.
dimension : int | Dimension.
dilation : int or tuple of int | Distance of the elements of a window.
dim : int or tuple of int | Dimension. NumPy's name `axis` is accepted too.
dim0 dim1 dim2 : int | Dimension.
dims : int or tuple of int | Dimensions.
distance_function : callable | Distance of two batches of vectors.
divisor_override : int | Divisor of the sum of a window.
downscale_factor : int | Factor r.
driver : {"gelsy", "gels", "gelsd", "gelss"} | Method of LAPACK.
dropout_p : float | Probability with which a weight is dropped.
dtype : dtype | Dtype in which the result is computed.
dx : float | Distance of the points.
edge_order : {1, 2} | Order of the differences at the ends.
elements : Tensor or ndarray | Elements.
embed_dim_to_check : int | Size E of the embedding.
enable_gqa : bool | Whether keys and values may have fewer heads.
end : int | End of the slice.
end_dim : int | Last dimension.
eps : float | Small number that avoids a division by zero.
equal_nan : bool | Whether two nan are equal.
equation : str | Subscripts.
exponent : float or Tensor or ndarray | Exponent.
full : bool | Whether constant terms are included.
full_matrices : bool | Whether U and Vh are square.
fill_value : float | Value.
fweights : Tensor or ndarray | How often each observation counts.
grid : Tensor or ndarray | Points (x, y) or (x, y, z), with coordinates from -1 to 1.
groups : int | Number of groups of channels that are convolved separately.
hard : bool | Whether the result is one-hot.
hermitian : bool | Whether the matrices are symmetric, or Hermitian.
ignore_index : int | Class that is ignored.
imag : Tensor or ndarray | Imaginary parts.
in_proj_bias : Tensor or ndarray | Bias of the input projections, (3 E,).
in_proj_weight : Tensor or ndarray | Weight of the input projections, (3 E, E).
include_last_offset : bool | Whether the last offset is the end.
include_self : bool | Whether the elements of the input take part.
increasing : bool | Whether the powers ascend.
ind : int | Number of dimensions of the result.
index : Tensor or ndarray | Integer indices.
indexing : {"ij", "xy"} | Order of the dimensions.
indices : Tensor or ndarray | Integer indices.
indices_or_sections : int or sequence of int | Number of parts, or the indices at which parts begin.
inplace : bool | Whether the input is updated in place.
input : Tensor or ndarray | Input.
input1 input2 : Tensor or ndarray | Vectors, (N, D) or (D,).
input_lengths : Tensor or tuple of int | Lengths of the inputs, (N,).
interpolation : {"linear", "lower", "higher", "midpoint", "nearest"} | Interpolation between two elements.
invert : bool | Whether the result is negated.
is_causal : bool | Whether later positions are masked.
k : int | Number.
k_proj_weight q_proj_weight v_proj_weight : Tensor or ndarray | Weight of a separate projection.
keepdim : bool | Whether reduced dimensions stay with size 1. NumPy's name `keepdims` is accepted too.
kernel_size : int or tuple of int | Size of the windows.
key : Tensor or ndarray | Keys.
key_padding_mask : Tensor or ndarray | Mask of the keys, (N, S).
label_smoothing : float | Share of the uniform distribution in the target.
lambd : float | Half of the width of the interval around 0.
largest : bool | Whether the largest elements are returned.
left : bool | Whether the matrix is on the left side.
length : int | Number of elements.
log_input : bool | Whether the input is the logarithm of the mean.
log_probs : Tensor or ndarray | Logarithms of probabilities, (T, N, C).
log_target : bool | Whether the target is given as logarithms.
logits : Tensor or ndarray | Unnormalized logarithms of probabilities.
margin : float | Margin.
mask : Tensor or ndarray | Booleans, which broadcast with the input.
mat mat1 mat2 : Tensor or ndarray | Matrix.
max : float or Tensor or ndarray | Upper bound.
max_norm : float | Largest norm of a row.
max_val : float | Upper bound.
maxnorm : float | Largest norm.
memory_format : object | Memory layout; the only one is the usual layout.
min : float or Tensor or ndarray | Lower bound.
min_val : float | Lower bound.
minlength : int | Smallest size of the result.
mode : str | Mode.
momentum : float | Share of the new statistics in the running statistics.
n : int | Number of repetitions.
nan : float | Value in place of nan.
need_weights : bool | Whether the weights are returned.
neginf posinf : float | Value in place of the infinity.
negative : Tensor or ndarray | Negative examples, (N, D).
negative_slope : float | Slope below 0.
norm_type : float | Order of the norm.
normalized_shape : sequence of int | Sizes of the last dimensions, which are normalized together.
num_classes : int | Number of classes; -1: one more than the largest integer.
num_groups : int | Number of groups of channels.
num_heads : int | Number of heads.
offset : int | Number of the diagonal; 0 is the main diagonal, and positive numbers are above it.
offsets : Tensor or ndarray | Beginnings of the bags.
operands : Tensor or ndarray | Operands.
ord : float or str | Order of the norm.
other : Tensor or ndarray or number | Second operand, which broadcasts with `input`.
out_int32 : bool | Whether the indices are int32.
out_proj_bias : Tensor or ndarray | Bias of the output projection, (E,).
out_proj_weight : Tensor or ndarray | Weight of the output projection, (E, E).
output_padding : int or tuple of int | Number of additional elements at the end of each output dimension.
output_ratio : float or sequence of float | Ratio of the sizes of output and input.
output_size : int or tuple of int | Sizes of the output.
p : float | Order of the norm.
pad : sequence of int | Pairs of counts, beginning with the last dimension.
padding : int or tuple of int | Number of elements that are added at each end.
padding_idx : int | Row that gets no gradient.
per_sample_weights : Tensor or ndarray | Factors of the rows.
pos_weight : Tensor or ndarray | Weights of positive targets.
positive : Tensor or ndarray | Positive examples, (N, D).
prepend : Tensor or ndarray | Values before the input along `dim`.
q : float or Tensor or ndarray | Probabilities, from 0 to 1.
query : Tensor or ndarray | Queries.
r : int | Number of elements of a choice.
range : sequence of float | Ends of the bins.
rcond : float | Relative size below which singular values count as zero.
real : Tensor or ndarray | Real parts.
recompute_scale_factor : bool | Whether the factor is computed again from the rounded sizes.
reduce : bool | Deprecated in PyTorch: False means `reduction="none"`.
reduction : {"none", "mean", "sum"} | What is done with the losses of the elements.
repeats : int or Tensor or ndarray | Number of repetitions, or a number for each element.
return_counts : bool | Whether the numbers of occurrences are returned.
return_indices : bool | Whether the indices of the maxima are returned.
return_inverse : bool | Whether the indices into the values are returned.
right : bool | Whether the index is after equal elements.
rounding_mode : {None, "trunc", "floor"} | Rounding of the quotient.
rtol : float | Relative tolerance.
running_mean running_var : Tensor or ndarray | Running statistic, (C,).
scale : float | Factor of the products of queries and keys.
scale_factor : float or tuple of float | Factor of the sizes.
scale_grad_by_freq : bool | Not supported.
shape : int or sequence of int | Shape.
shapes : tuple of int | Shapes.
shifts : int or tuple of int | Number of places.
side : {"left", "right"} | Another way to pass `right`.
size : int or sequence of int | Sizes.
size_average : bool | Deprecated in PyTorch: False means `reduction="sum"`.
sizes : int or sequence of int | Sizes.
some : bool | Whether the factors are reduced.
sorted : bool | Without effect: the values are sorted.
sorted_sequence : Tensor or ndarray | Sequence that is sorted along its last dimension.
sorter : Tensor or ndarray | Indices that sort the sequence.
source : Tensor or ndarray | Values to write.
spacing : float or sequence | Distances of neighbours, or their coordinates.
sparse : bool | Not supported.
split_size_or_sections : int or sequence of int | Size of the parts, or the sizes.
split_sizes : sequence of int | Sizes of the parts.
src : Tensor or ndarray | Values to write.
stable : bool | Without effect: equal elements keep their order.
start : int | First index.
start_dim : int | First dimension.
static_k static_v : object | Not supported.
step : int | Step of the slice.
stride : int or tuple of int | Distance of the windows.
swap : bool | Whether the smaller one of the two negative distances counts.
target : Tensor or ndarray | Target.
target_lengths : Tensor or tuple of int | Lengths of the targets, (N,).
targets : Tensor or ndarray | Classes.
tau : float | Temperature.
tensor : Tensor or ndarray | Input.
tensor1 tensor2 : Tensor or ndarray | Factor, or divisor.
tensors : Tensor or ndarray | Values.
test_elements : Tensor or ndarray | Elements to compare with.
theta : Tensor or ndarray | Affine maps.
threshold : float | Threshold.
training : bool | Whether the function runs in training.
unbiased : bool | False: `correction` is 0.
unitriangular : bool | Whether the diagonal counts as ones, and is not read.
upper : bool | Whether the triangle is the upper one.
upscale_factor : int | Factor r.
use_input_stats : bool | Whether mean and variance are those of the input.
use_separate_proj_weight : bool | Whether the projections have separate weights.
value : float | Value.
values : Tensor or ndarray or number | Values.
var : Tensor or ndarray or float | Variances.
vec vec1 vec2 : Tensor or ndarray | Vector.
weight : Tensor or ndarray | Factors of the elements.
weights : Tensor or ndarray | Weights of the elements.
with_replacement : bool | Whether an element may be chosen more than once.
wrap : bool | Whether the diagonal begins again after the last column.
x : Tensor or ndarray | Input.
x1 x2 : Tensor or ndarray | Vectors.
xs : Tensor or ndarray | Operands.
y : Tensor or ndarray | Values of the function.
zero_infinity : bool | Whether infinite losses become 0.

align_to_window : bool | Not supported; without `center` it may be False.
center : bool | Whether frames are centered at multiples of the hop length.
hop_length : int | Distance of the frames; by default n_fft // 4.
n_fft : int | Number of elements of a frame.
normalized : bool | Whether transforms are divided by sqrt(n_fft).
onesided : bool | Whether only the frequencies from 0 on are computed.
pad_mode : str | Mode of the padding, as in `nn.functional.pad`.
return_complex : bool | Whether the result is complex.
win_length : int | Number of elements of the window; by default n_fft.
window : Tensor or ndarray | Window; by default ones.
istft.length : int | Number of elements of the signal.
LU LU_data : Tensor or ndarray | Factors in one array.
M : Tensor or ndarray | Matrix that is subtracted.
adjoint : bool | Whether the conjugate transpose takes the place of the matrix.
check_errors : bool | Whether a failure raises.
LD : Tensor or ndarray | Factors of `ldl_factor` in one array.
ormqr.tau : Tensor or ndarray | Factors of the reflections.
ormqr.transpose : bool | Whether Q^H takes the place of Q.
get_infos : bool | Whether the result has the numbers of zero pivots.
niter : int | Number of power iterations.
pivot : bool | Whether rows are exchanged; False is not supported.
pivots LU_pivots : Tensor or ndarray | Row exchanges, int32, from 1 on.
pca_lowrank.center : bool | Whether the mean of the rows is subtracted.
householder_product.tau : Tensor or ndarray | Factors of the reflections.
unpack_data unpack_pivots : bool | Whether L and U, or P, are computed.
svd_lowrank.q pca_lowrank.q : int | Number of singular values.
rrelu.lower rrelu.upper : float | Bound of the slope below 0.
adaptive_avg_pool1d.output_size adaptive_max_pool1d.output_size : int | Size of the output.
addcmul.value addcdiv.value : float | Factor of the product, or of the quotient.
addmv.input : Tensor or ndarray | Vector to add, which broadcasts.
alpha_dropout.p feature_alpha_dropout.p : float | Probability with which an element is dropped.
batch_norm.weight instance_norm.weight group_norm.weight : Tensor or ndarray | Factors of the channels, (C,).
batch_norm.bias instance_norm.bias group_norm.bias : Tensor or ndarray | Terms of the channels, (C,).
broadcast_tensors.tensors : Tensor or ndarray | Values whose shapes broadcast.
celu.alpha elu.alpha : float | Scale of the negative part.
cholesky_solve.input cholesky_solve.B : Tensor or ndarray | Right-hand side.
clamp.dim : int | Dimension.
conv1d.input conv_transpose1d.input : Tensor or ndarray | Input, (N, C, d) or (C, d).
conv2d.input conv_transpose2d.input : Tensor or ndarray | Input, (N, C, d1, d2) or (C, d1, d2).
conv3d.input conv_transpose3d.input : Tensor or ndarray | Input, (N, C, d1, d2, d3) or (C, d1, d2, d3).
conv1d.weight : Tensor or ndarray | Weight, (O, C / groups, k).
conv2d.weight : Tensor or ndarray | Weight, (O, C / groups, k1, k2).
conv3d.weight : Tensor or ndarray | Weight, (O, C / groups, k1, k2, k3).
conv_transpose1d.weight : Tensor or ndarray | Weight, (C, O / groups, k).
conv_transpose2d.weight : Tensor or ndarray | Weight, (C, O / groups, k1, k2).
conv_transpose3d.weight : Tensor or ndarray | Weight, (C, O / groups, k1, k2, k3).
conv1d.padding conv2d.padding conv3d.padding : int, tuple of int, or str | Zeros at each end; "valid" or "same".
copysign_.other : Tensor or ndarray or number | Numbers whose signs are taken.
cov.input corrcoef.input : Tensor or ndarray | Variables in rows, observations in columns.
cross_entropy.weight nll_loss.weight : Tensor or ndarray | Factors of the classes, (C,).
cross_entropy.target : Tensor or ndarray | Classes, or probabilities with the shape of the input.
cummax.dim cummin.dim cumsum.dim cumprod.dim logcumsumexp.dim : int | Dimension.
dropout.p dropout1d.p dropout2d.p dropout3d.p : float | Probability with which an element is 0.
embedding.input : Tensor or ndarray | Integer indices.
embedding.weight : Tensor or ndarray | Rows, (number, size).
embedding_bag.mode : {"sum", "mean", "max"} | Reduction.
grid_sample.mode : {"bilinear", "nearest", "bicubic"} | Interpolation.
grid_sample.padding_mode : {"zeros", "border", "reflection"} | What is outside of the image.
interpolate.mode : str | "nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear" or "area".
lerp.end : Tensor or ndarray | Values for the weight 1.
lerp.weight : float or Tensor or ndarray | Weight of `end`.
linear.weight : Tensor or ndarray | Weight, (m, n) or (n,).
linear.bias : Tensor or ndarray | Bias, (m,).
linear.input : Tensor or ndarray | Input, (..., n).
layer_norm.weight rms_norm.weight : Tensor or ndarray | Factors, of shape `normalized_shape`.
layer_norm.bias : Tensor or ndarray | Terms, of shape `normalized_shape`.
local_response_norm.beta : float | Exponent.
local_response_norm.k : float | Constant term.
local_response_norm.size : int | Number of neighbouring channels.
logit.eps : float | Distance of the bounds from 0 and 1.
matrix_power.n : int | Exponent.
matmul.other vdot.other inner.other kron.other cross.other : Tensor or ndarray | Second operand.
equal_.other dist.other : Tensor or ndarray | Second operand.
dot.tensor : Tensor or ndarray | Second vector.
multi_margin_loss.p : {1, 2} | Exponent.
split.tensor : Tensor or ndarray | Input.
triplet_margin_with_distance_loss.swap : bool | Whether the distance of the positive is used if it is smaller.
vander.N : int | Number of powers; by default the size of the vector.
unravel_index.shape : int or sequence of int | Shape of the array.
broadcast_to.size : int or sequence of int | Shape of the result.
max.other min.other : Tensor or ndarray | Second operand.
meshgrid.tensors cartesian_prod.tensors : Tensor or ndarray | Vectors.
multi_dot.tensors : sequence of Tensor or ndarray | Matrices.
cat.tensors stack.tensors hstack.tensors vstack.tensors : sequence of Tensor or ndarray | Values to join.
dstack.tensors column_stack.tensors : sequence of Tensor or ndarray | Values to join.
block_diag.tensors : Tensor or ndarray | Matrices.
movedim.source : int or tuple of int | Dimensions.
multi_head_attention_forward.query : Tensor or ndarray | Queries, (L, N, E) or (L, E).
multi_head_attention_forward.key multi_head_attention_forward.value : Tensor or ndarray | Keys, or values, (S, N, ...).
chain_matmul.matrices : Tensor or ndarray | Matrices.
as_strided.size as_strided_scatter.size : tuple of int | Sizes.
as_strided.stride as_strided_scatter.stride : tuple of int | Distances of elements in memory, in elements.
storage_offset : int | Place of the first element in the memory; by default that of the input.
as_strided_scatter.src : Tensor or ndarray | Values to write.
put.index : Tensor or ndarray | Indices, int64.
put.source : Tensor or ndarray | Values to write, as many as indices.
multigammaln.p : int | Dimension.
mvlgamma.p : int | Dimension.
pad.mode : {"constant", "reflect", "replicate", "circular"} | What the new elements are.
pad.value : float | New elements in mode "constant".
polygamma.n : int | Order of the derivative.
prelu.weight : Tensor or ndarray | One slope, or a slope for each channel.
qr.mode : {"reduced", "complete", "r"} | Which factors are computed.
roll.dims : int or tuple of int | Dimensions; by default the input is flattened.
rot90.k : int | Number of turns by 90 degrees.
scaled_dot_product_attention.query : Tensor or ndarray | Queries, (..., L, E).
scaled_dot_product_attention.key : Tensor or ndarray | Keys, (..., S, E).
scaled_dot_product_attention.value : Tensor or ndarray | Values, (..., S, V).
scatter.reduce : {"add", "multiply"} | How a value is combined with the element that is there.
scatter.src : Tensor or ndarray or number | Values to write.
scatter_reduce.reduce : {"sum", "prod", "mean", "amax", "amin"} | Reduction.
index_reduce.reduce : {"prod", "mean", "amax", "amin"} | Reduction.
index_fill.value masked_fill.value : number or Tensor or ndarray | Value.
index_put.indices : tuple of Tensor or ndarray | Index arrays, or masks.
select.index select_scatter.index : int | Index.
smooth_l1_loss.beta : float | Distance at which the loss becomes linear.
softplus.beta : float | Scale of the input.
softplus.threshold : float | Product of `beta` and the input above which the function is linear.
tensordot.dims : int or pair of sequences | Number of dimensions, or the pairs of dimensions.
tensorsolve.dims : tuple of int | Dimensions of A that are moved to its end.
topk.k : int | Number of elements.
kthvalue.k : int | Position, counted from 1.
var.dim : int or tuple of int | Dimensions; by default all.
vander.x : Tensor or ndarray | Vector.
vecdot.x vecdot.y : Tensor or ndarray | Vectors along `dim`.
trapezoid.x cumulative_trapezoid.x : Tensor or ndarray | Points.
vector_norm.x : Tensor or ndarray | Vectors.
histc.bins : int | Number of bins.
histc.min histc.max : float | End of the range.
where.input where.other : Tensor or ndarray or number | Values where the condition holds, or does not hold.
one_hot.tensor : Tensor or ndarray | Integers.
repeat_interleave.output_size : int | Size of the result.
"""

_RESULTS = """
numel : int | Number of elements.
split split_with_sizes chunk tensor_split hsplit vsplit dsplit unbind : tuple of Tensor or ndarray | Parts: views.
broadcast_shapes_ : tuple of int | Shape.
meshgrid broadcast_tensors : tuple of Tensor or ndarray | Results.
atleast_1d atleast_2d atleast_3d : Tensor or ndarray, or tuple of them | Results.
sort topk kthvalue cummax cummin mode : named tuple (values, indices) | Values, and their indices.
max min median nanmedian : Tensor or ndarray, or named tuple (values, indices) | Value, or values and indices.
aminmax : named tuple (min, max) | Smallest and largest value.
unique : Tensor or ndarray, or tuple of them | Values, and what else is asked for.
equal_ allclose is_conj is_nonzero : bool | Answer.
std_mean var_mean : tuple of Tensor or ndarray | Pair.
frexp : named tuple (mantissa, exponent) | Mantissas and exponents.
histogram : named tuple (hist, bin_edges) | Counts and edges.
histogramdd : named tuple (hist, bin_edges) | Counts, and the edges of each dimension.
gradient : list of Tensor or ndarray | Derivative along each dimension.
_svd : named tuple (U, S, V) | Factors.
svd : named tuple (U, S, Vh) | Factors.
_qr qr : named tuple (Q, R) | Factors.
eigh : named tuple (eigenvalues, eigenvectors) | Eigenvalues, and eigenvectors in columns.
_slogdet slogdet : named tuple (sign, logabsdet) | Sign, and logarithm of the magnitude.
lstsq : named tuple (solution, residuals, rank, singular_values) | Solution and diagnostics.
unravel_index : tuple of Tensor or ndarray | Indices along each dimension.
nonzero where : Tensor or ndarray, or tuple of them | Result.
adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d : Tensor or ndarray, or tuple of them | Maxima.
max_pool1d max_pool2d max_pool3d : Tensor or ndarray, or tuple of them | Maxima, with `return_indices` also indices.
multi_head_attention_forward : tuple of Tensor or ndarray | Output and weights.
"""

FUNCTION_DOCS = DocTable(_PARAMETERS, _RESULTS)
