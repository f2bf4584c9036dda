"""Table of the parameters of distributions and transforms, for their docstrings."""

from __future__ import annotations

from tracegrad.utils.doc_table import DocTable

_PARAMETERS = """
alpha : Tensor or float | Exponent.
base_distribution : Distribution | Distribution of the values before.
base_transform : Transform | Transform of the values before.
batch_shape : tuple of int | Shape over which the parameters are batched.
cache_size : {0, 1} | Number of values that are stored.
component_distribution : Distribution | Components, along the last dimension of the batch.
concentration : Tensor or float | Concentration.
concentration0 concentration1 : Tensor or float | Concentration.
constraint : Constraint | Constraint.
cov_diag : Tensor | Diagonal D, (..., n).
cov_factor : Tensor | Factor W, (..., n, k).
covariance_matrix : Tensor | Covariance, (..., n, n).
df df1 df2 : Tensor or float | Degrees of freedom.
LKJCholesky.dim : int | Number of rows.
max_try_correction : int | Not used.
diag : int | Number of the diagonal that is the last one.
dim : int | Dimension.
distribution : Distribution | Distribution.
event_dim : int | Number of dimensions of an event.
event_shape : tuple of int | Shape of one sample.
exponent : Tensor or float | Exponent.
high low : Tensor or float | End of the interval.
in_shape out_shape : tuple of int | Shape of an event.
is_binary : bool | Whether there are two values.
lengths : sequence of int | Lengths of the parts; 1 by default.
lims : tuple of float | Interval in which series are used.
loc : Tensor or float | Location.
logits : Tensor or float | Log odds, or unnormalized logarithms of the probabilities.
mat : Tensor | Matrices, (..., n, n).
mixture_distribution : Categorical | Distribution of the components' numbers.
p q : Distribution | Distribution.
parts tseq : sequence of Transform | Transforms.
precision_matrix : Tensor | Inverse of the covariance, (..., n, n).
probs : Tensor or float | Probabilities.
rate : Tensor or float | Rate: inverse of the scale.
reinterpreted_batch_ndims : int | Number of batch dimensions that belong to an event.
scale : Tensor or float | Scale.
scale_tril : Tensor | Lower triangular factor of the covariance, (..., n, n).
temperature : Tensor or float | Temperature.
total_count : Tensor or int | Number of trials.
transforms : Transform or list of Transform | Transforms.
type_p type_q : type | Class of distributions.
validate_args : bool | Whether parameters and samples are checked.
values : Tensor or float | Values.
vec : Tensor | Vectors, (..., k).
wrapped : callable | Function that computes the value.
"""

_RESULTS = """
kl_divergence : Tensor | Divergence, of the batch shape.
register_kl : callable | Decorator.
is_dependent : bool | Whether it depends on parameters.
broadcast_all : tuple of Tensor | Tensors of one shape.
clamp_probs logits_to_probs probs_to_logits tril_matrix_to_vec vec_to_tril_matrix : Tensor | Result.
"""

DISTRIBUTION_DOCS = DocTable(_PARAMETERS, _RESULTS)
