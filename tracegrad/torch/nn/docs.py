"""Table of the parameters and shapes of modules, for their docstrings.

The rows of shapes have the shape of the input and that of the output; `*` stands for any dimensions.
"""

from __future__ import annotations

from tracegrad.utils.doc_table import DocTable

__all__ = ["MODULE_DOCS"]

_PARAMETERS = """
a : float | Slope of a leaky rectifier below 0.
activation : {"relu", "gelu"} or callable | Activation of the feed-forward network.
add_bias_kv : bool | Whether a row of parameters is appended to keys and values.
add_zero_attn : bool | Whether a row of zeros is appended to keys and values.
affine : bool | Whether there are parameters `weight` and `bias`.
align_corners : bool | Whether the centers of the corners stay in place.
alpha : float | Scale of the negative part.
amount : int or float | Number, or share between 0 and 1, that is pruned.
approximate : {"none", "tanh"} | Approximation of the distribution function.
args : BasePruningMethod | Methods, in their order.
b : float | Upper bound.
batch_first : bool | Whether the batch is the first dimension.
beta : float | Scale of the input.
bias : bool | Whether there is a parameter `bias`.
bidirectional : bool | Whether a second network runs from the last step to the first.
blank : int | Class of the blank.
ceil_mode : bool | Whether the output size is rounded up.
clip_value : float | Bound.
count_include_pad : bool | Whether the zeros of the padding count in the mean.
custom_decoder custom_encoder : Module | Module to use in its place.
cutoffs : sequence of int | First classes of the clusters, in ascending order.
d_model : int | Number of features.
data : Tensor or ndarray | Value, whose memory is shared; without it there are no elements.
decoder_layer encoder_layer : Module | Layer, which is copied.
delta : float | Distance at which the loss becomes linear.
device : str or device | Device, which is "cpu".
dilation : int or tuple of int | Distance of the elements of a window.
dim : int | Dimension.
dim_feedforward : int | Number of features inside of the feed-forward network.
device_ids output_device : object | Without effect.
distance_function : callable | Distance of two arrays of vectors; by default the 2-norm.
div_value : float | Ratio of the numbers of features of one cluster and the next.
divisor_override : int | Divisor of the sum of a window.
downscale_factor : int | Factor r.
dropout : float | Probability with which an element is dropped in training.
dtype : dtype | Dtype of the parameters.
elementwise_affine : bool | Whether there are parameters `weight` and `bias`.
embed_dim : int | Number of features.
embedding_dim : int | Size of a row.
enable_nested_tensor : bool | Without effect.
end_dim : int | Last dimension.
enforce_sorted : bool | Whether the sequences must be in descending order of length.
eps : float | Small number that avoids a division by zero.
error_if_nonfinite : bool | Whether a norm that is not finite is an error.
foreach : bool | Without effect.
full : bool | Whether constant terms are included.
gain : float | Factor.
generator : Generator | Source of random numbers; by default the default generator.
groups : int | Number of groups of channels.
head_bias : bool | Whether the head has a bias.
hidden_size : int | Number of features of the state.
ignore_index : int | Class that is ignored.
importance_scores : Tensor | Numbers in place of the values, of which the smallest are pruned.
in1_features in2_features : int | Size of the last dimension of an input.
in_channels : int | Number of channels of the input.
in_features : int | Size of the last dimension of the input.
include_last_offset : bool | Whether the last offset is the end.
init : float | Initial slope.
inplace : bool | Whether the input is updated in place.
input_size : int | Number of features of the input.
k : float | Constant term.
kdim vdim : int | Number of features of the keys, or values; by default `embed_dim`.
keepdim : bool | Whether the reduced dimension stays with size 1.
kernel_size : int or tuple of int | Size of the windows.
kwargs : object | Options of the method.
label_smoothing : float | Share of the uniform distribution in the target.
lambd : float | Half of the width of the interval around 0.
layer_norm_eps : float | `eps` of the normalizations.
leave_parametrized : bool | Whether the present value stays, instead of the original.
lengths : Tensor or sequence of int | Lengths of the sequences.
log_input : bool | Whether the input is the logarithm of the mean.
log_target : bool | Whether the target is given as logarithms.
lower upper : float | Bounds of the slope below 0.
margin : float | Margin.
mask : Tensor | 0 where the parameter is pruned, 1 elsewhere.
mask_check : bool | Without effect.
max_norm : float | Largest norm.
max_val : float | Upper bound.
mean : float | Mean.
min_val : float | Lower bound.
mode : str | Mode.
module : Module | Module, which is changed.
modules : iterable of Module | Modules.
momentum : float | Share of the new statistics in the running statistics; None: their mean.
n : float or "fro" | Order of the norm.
n_power_iterations : int | Number of power iterations at each call.
n_classes : int | Number of classes.
name : str | Name of the parameter.
negative_slope : float | Slope below 0.
nhead num_heads : int | Number of heads.
nonlinearity : str | Name of the nonlinearity.
norm : Module | Normalization at the end.
norm_first : bool | Whether normalization comes before each part, instead of after it.
norm_type : float | Order of the norm.
normalized_shape : int or sequence of int | Sizes of the last dimensions, which are normalized together.
num_channels : int | Number of channels.
num_classes : int | Number of classes.
num_decoder_layers num_encoder_layers : int | Number of layers.
num_embeddings : int | Number of rows.
num_features : int | Number C of channels.
num_groups : int | Number of groups of channels.
num_layers : int | Number of layers.
num_parameters : int | Number of slopes: 1, or the number of channels.
original : Tensor | Parameter or buffer that is computed.
orthogonal_map : {"matrix_exp", "cayley", "householder"} | Map to orthogonal matrices; None chooses by the shape.
out_channels : int | Number of channels of the output.
out_features : int | Size of the last dimension of the output.
output_padding : int or tuple of int | Number of additional elements at the end of each output dimension.
output_ratio : float or tuple of float | Ratio of the sizes of output and input, between 0 and 1.
output_size : int or tuple of int | Sizes of the output; None keeps a size.
p : float | Probability with which an element is 0.
packed_sequences sequence : PackedSequence | Packed sequences.
padded_sequences : Tensor | Padded sequences, (T, N, *).
padding : int or tuple of int | Number of elements that are added at each end.
padding_idx : int | Row that is initialized with zeros, and gets no gradient.
padding_mode : {"zeros", "reflect", "replicate", "circular"} | What the added elements are.
padding_side : {"right", "left"} | Side that is filled.
padding_value : float | Element that fills.
param : float | Slope of "leaky_relu".
parameters : iterable of Tensor | Parameters.
parametrization : Module | Module that computes the tensor, and what it is computed from by `right_inverse`.
permutation : Tensor | Permutation.
persistent : bool | Whether the `state_dict` has the buffer.
pos_weight : Tensor or ndarray | Weights of positive targets.
proj_size : int | Not supported.
pruning_method : type | Class of the method.
recompute_scale_factor : bool | Whether the factor is computed again from the rounded sizes.
reduce : bool | Deprecated in PyTorch: False means `reduction="none"`.
reduction : {"mean", "sum", "none"} | What is done with the losses of the elements.
requires_grad : bool | Whether operations on the parameter are recorded.
return_indices : bool | Whether the indices of the maxima are returned.
scale_factor : float or tuple of float | Factor of the sizes.
scale_grad_by_freq : bool | Not supported.
sequences : sequence of Tensor | Sequences, (L, *).
size : int | Number of neighbouring channels.
size_average : bool | Deprecated in PyTorch: False means `reduction="sum"`.
sparse : bool | Not supported.
sparsity : float | Share of zeros in each column.
start_dim : int | First dimension.
std : float | Standard deviation.
stride : int or tuple of int | Distance of the windows.
swap : bool | Whether the smaller one of the two negative distances counts.
tensor : Tensor | Tensor, which is filled in place.
tensor_name : str | Name of the parameter or buffer.
tensors : iterable of Tensor | Tensors.
threshold : float | Threshold.
total_length : int | Length of the padded sequences; by default that of the longest one.
total_norm : Tensor | Norm of the gradients.
track_running_stats : bool | Whether there are running statistics.
unflattened_size : sequence of int | Sizes.
unsafe : bool | Whether the dtype and the shape may change.
upscale_factor : int | Factor r.
use_trivialization : bool | Whether the values are multiplied by a matrix that is set with the weight.
val : float | Value.
value : float | Value.
values : iterable | Parameters, Tensors or other objects.
vec : Tensor | Vector of all elements.
weight : Tensor or ndarray | Factors of the elements, which broadcast.
zero_infinity : bool | Whether infinite losses become 0.

LocalResponseNorm.alpha : float | Factor of the mean of squares.
LocalResponseNorm.beta : float | Exponent.
SmoothL1Loss.beta : float | Distance at which the loss becomes linear.
Softplus.threshold : float | Product of `beta` and the input above which the function is linear.
CrossEntropyLoss.weight NLLLoss.weight : Tensor or ndarray | Factors of the classes, (C,).
PairwiseDistance.p TripletMarginLoss.p : float | Order of the norm.
Sequential.args : Module, or one dict of Module | Modules, in their order.
ModuleDict.modules : mapping of str to Module | Modules by name.
ParameterDict.parameters : mapping | Parameters, Tensors or other objects, by name.
RNNBase.mode : {"RNN_TANH", "RNN_RELU", "LSTM", "GRU"} | Kind of the network.
RNN.nonlinearity RNNCell.nonlinearity : {"tanh", "relu"} | Nonlinearity.
RNNBase.dropout RNN.dropout LSTM.dropout GRU.dropout : float | Probability of `Dropout` between layers in training.
kaiming_uniform_.mode kaiming_normal_.mode : {"fan_in", "fan_out"} | Which fan is taken.
trunc_normal_.a uniform_.a : float | Lower bound.
vector_to_parameters.parameters : iterable of Tensor | Parameters, which are updated in place.
Conv1d.stride Conv2d.stride Conv3d.stride : int or tuple of int | Distance of the positions.
Conv1d.padding Conv2d.padding Conv3d.padding : int, tuple of int, or str | Zeros at each end; "valid" or "same".
AvgPool1d.stride AvgPool2d.stride AvgPool3d.stride : int or tuple of int | Distance of the windows; by default the size.
MaxPool1d.stride MaxPool2d.stride MaxPool3d.stride : int or tuple of int | Distance of the windows; by default the size.
LPPool1d.stride LPPool2d.stride LPPool3d.stride : int or tuple of int | Distance of the windows; by default the size.
CircularPad1d.padding CircularPad2d.padding CircularPad3d.padding : int or tuple of int | Counts for both ends.
ConstantPad1d.padding ConstantPad2d.padding ConstantPad3d.padding : int or tuple of int | Counts for both ends.
ReflectionPad1d.padding ReflectionPad2d.padding ReflectionPad3d.padding : int or tuple of int | Counts for both ends.
ReplicationPad1d.padding ReplicationPad2d.padding ReplicationPad3d.padding : int or tuple of int | Counts for both ends.
ZeroPad1d.padding ZeroPad2d.padding ZeroPad3d.padding : int or tuple of int | Counts for both ends.
pack_padded_sequence.input : Tensor | Padded sequences, (T, N, *).
weight_norm.dim remove_weight_norm.dim : int | Dimension with a norm for each index; None has one norm.
spectral_norm.dim : int | Dimension of the outputs.
Upsample.mode : str | "nearest", "linear", "bilinear", "bicubic" or "trilinear".
Upsample.size UpsamplingNearest2d.size UpsamplingBilinear2d.size : int or tuple of int | Sizes of the output.
EmbeddingBag.mode : {"sum", "mean", "max"} | Reduction.
MultiMarginLoss.p : {1, 2} | Exponent.
MultiMarginLoss.weight MultiLabelSoftMarginLoss.weight : Tensor or ndarray | Factors of the classes, (C,).
"""

_RESULTS = """
weight_norm remove_weight_norm spectral_norm remove_spectral_norm : Module | The module.
pack_padded_sequence pack_sequence : PackedSequence | Packed sequences.
pad_packed_sequence : tuple of Tensor | Padded sequences, and their lengths.
unpad_sequence unpack_sequence : list of Tensor | Sequences.
pad_sequence : Tensor | Padded sequences, (T, N, *).
invert_permutation : Tensor | Inverse.
calculate_gain : float | Factor.
constant_ dirac_ eye_ kaiming_normal_ kaiming_uniform_ normal_ ones_ orthogonal_ : Tensor | The Tensor.
sparse_ trunc_normal_ uniform_ xavier_normal_ xavier_uniform_ zeros_ : Tensor | The Tensor.
clip_grad_norm clip_grad_norm_ : Tensor | Norm before the gradients were scaled.
clip_grad_value_ clip_grads_with_norm_ vector_to_parameters : None | Nothing.
get_total_norm : Tensor | Norm.
parameters_to_vector : Tensor | Vector of all elements.
"""

_SHAPES = """
AdaptiveAvgPool1d AdaptiveMaxPool1d : (N, C, L) or (C, L) | (N, C, output_size)
AdaptiveAvgPool2d AdaptiveMaxPool2d : (N, C, H, W) or (C, H, W) | (N, C, *output_size)
AdaptiveAvgPool3d AdaptiveMaxPool3d : (N, C, D, H, W) or (C, D, H, W) | (N, C, *output_size)
AvgPool1d MaxPool1d LPPool1d : (N, C, L) or (C, L) | (N, C, L_out)
AvgPool2d MaxPool2d LPPool2d : (N, C, H, W) or (C, H, W) | (N, C, H_out, W_out)
AvgPool3d MaxPool3d LPPool3d : (N, C, D, H, W) or (C, D, H, W) | (N, C, D_out, H_out, W_out)
MaxUnpool1d : (N, C, L) or (C, L) | (N, C, L_out)
MaxUnpool2d : (N, C, H, W) or (C, H, W) | (N, C, H_out, W_out)
MaxUnpool3d : (N, C, D, H, W) or (C, D, H, W) | (N, C, D_out, H_out, W_out)
FractionalMaxPool2d : (N, C, H, W) or (C, H, W) | (N, C, *output_size)
FractionalMaxPool3d : (N, C, D, H, W) or (C, D, H, W) | (N, C, *output_size)
AdaptiveLogSoftmaxWithLoss : (N, in_features), and a target (N,) | (N,), and the loss ()
BatchNorm1d LazyBatchNorm1d : (N, C) or (N, C, L) | the same
BatchNorm2d LazyBatchNorm2d : (N, C, H, W) | the same
BatchNorm3d LazyBatchNorm3d : (N, C, D, H, W) | the same
InstanceNorm1d LazyInstanceNorm1d : (N, C, L) or (C, L) | the same
InstanceNorm2d LazyInstanceNorm2d : (N, C, H, W) or (C, H, W) | the same
InstanceNorm3d LazyInstanceNorm3d : (N, C, D, H, W) or (C, D, H, W) | the same
GroupNorm LocalResponseNorm : (N, C, *) | the same
LayerNorm RMSNorm : (*, *normalized_shape) | the same
CELU ELU GELU RReLU SELU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid LogSoftmax : (*) | the same
Mish ReLU ReLU6 SiLU Sigmoid Softmax Softmin Softplus Softshrink Softsign Tanh Tanhshrink Threshold : (*) | the same
GLU : (*, n, *) | (*, n / 2, *)
PReLU : (*) or (N, C, *) | the same
Softmax2d : (N, C, H, W) or (C, H, W) | the same
Dropout Identity : (*) | the same
Dropout1d : (N, C, L) or (C, L) | the same
Dropout2d : (N, C, H, W) or (C, H, W) | the same
Dropout3d : (N, C, D, H, W) or (C, D, H, W) | the same
Linear LazyLinear : (*, in_features) | (*, out_features)
Bilinear : (*, in1_features) and (*, in2_features) | (*, out_features)
Embedding : (*), of integers | (*, embedding_dim)
Conv1d ConvTranspose1d : (N, in_channels, L) or (in_channels, L) | (N, out_channels, L_out)
Conv2d ConvTranspose2d : (N, in_channels, H, W) or (in_channels, H, W) | (N, out_channels, H_out, W_out)
Conv3d ConvTranspose3d : (N, in_channels, D, H, W) or without N | (N, out_channels, D_out, H_out, W_out)
LazyConv1d LazyConvTranspose1d : (N, C, L) or (C, L) | (N, out_channels, L_out)
LazyConv2d LazyConvTranspose2d : (N, C, H, W) or (C, H, W) | (N, out_channels, H_out, W_out)
LazyConv3d LazyConvTranspose3d : (N, C, D, H, W) or (C, D, H, W) | (N, out_channels, D_out, H_out, W_out)
Flatten : (*, a, ..., b, *) | (*, a * ... * b, *)
Unflatten : (*, n, *) | (*, *unflattened_size, *)
Upsample UpsamplingNearest2d UpsamplingBilinear2d : (N, C, *) | (N, C, *size)
Unfold : (N, C, H, W) | (N, C kh kw, windows)
Fold : (N, C kh kw, windows) | (N, C, *output_size)
EmbeddingBag : (N,) of integers, and offsets (B,) | (B, embedding_dim)
CTCLoss : (T, N, C), targets (N, S), and lengths (N,) twice | (), or (N,)
MultiMarginLoss : (N, C), and a target (N,) | (), or (N,)
MultiLabelMarginLoss MultiLabelSoftMarginLoss : (N, C) twice | (), or (N,)
AlphaDropout FeatureAlphaDropout : (*) | the same
PixelShuffle : (*, C r r, H, W) | (*, C, H r, W r)
PixelUnshuffle : (*, C, H r, W r) | (*, C r r, H, W)
CircularPad1d ConstantPad1d ReflectionPad1d ReplicationPad1d ZeroPad1d : (N, C, L) or (C, L) | (N, C, L_out)
CircularPad2d ConstantPad2d ReflectionPad2d ReplicationPad2d ZeroPad2d : (*, H, W) | (*, H_out, W_out)
CircularPad3d ConstantPad3d ReflectionPad3d ReplicationPad3d ZeroPad3d : (*, D, H, W) | (*, D_out, H_out, W_out)
BCELoss BCEWithLogitsLoss HuberLoss L1Loss MSELoss SmoothL1Loss KLDivLoss : (*), and a target (*) | (), or (*)
PoissonNLLLoss SoftMarginLoss GaussianNLLLoss HingeEmbeddingLoss : (*), and a target (*) | (), or (*)
CrossEntropyLoss NLLLoss : (N, C, *), and a target (N, *) | (), or (N, *)
CosineEmbeddingLoss : (N, D) twice, and a target (N,) | (), or (N,)
MarginRankingLoss : (N,) twice, and a target (N,) | (), or (N,)
TripletMarginLoss TripletMarginWithDistanceLoss : (N, D) three times | (), or (N,)
CosineSimilarity PairwiseDistance : (*, D, *) twice | (*, *)
RNN GRU : (L, N, input_size) or (L, input_size), and a state | (L, N, hidden_size), and the last state
LSTM : (L, N, input_size) or (L, input_size), and two states | (L, N, hidden_size), and the last two states
RNNCell GRUCell : (N, input_size) or (input_size,), and a state | (N, hidden_size)
LSTMCell : (N, input_size) or (input_size,), and two states | (N, hidden_size) twice
MultiheadAttention : (L, N, embed_dim), (S, N, kdim) and (S, N, vdim) | (L, N, embed_dim), and weights (N, L, S)
TransformerEncoderLayer TransformerEncoder : (S, N, d_model) | the same
TransformerDecoderLayer TransformerDecoder : (T, N, d_model), and a memory (S, N, d_model) | (T, N, d_model)
Transformer : (S, N, d_model) and (T, N, d_model) | (T, N, d_model)
"""

MODULE_DOCS = DocTable(_PARAMETERS, _RESULTS, _SHAPES)
