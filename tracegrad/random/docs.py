"""The parameters and results of the functions of `tracegrad.random`, from which their docstrings get sections."""

from __future__ import annotations

from tracegrad.utils.doc_table import DocTable

__all__ = ["RANDOM_DOCS"]

_PARAMETERS = r"""
key : uint32 array of shape (2,) | Key, which must not be used for anything else.
fold_in.key : uint32 array of shape (2,) | Key.
shape : int or tuple of int | Shape of the result.
truncated_normal.shape gamma.shape : int or tuple of int | Shape of the result; by default that of the parameters.
beta.shape t.shape bernoulli.shape : int or tuple of int | Shape of the result; by default that of the parameters.
dirichlet.shape : int or tuple of int | Shape of the batch of points.
multivariate_normal.shape : int or tuple of int | Shape of the batch of vectors.
categorical.shape : int or tuple of int | Shape of a batch of draws, whose axes come first.
dtype : {float64, float32} | Dtype of the result.
rademacher.dtype randint.dtype : dtype | Integer dtype of the result.
minval maxval : float or array | Bounds, which broadcast with `shape`.
randint.minval randint.maxval : int or integer array | Bounds, which broadcast with `shape`, at most 2**32 apart.
lower upper : float or array | Bounds.
a : float or array | Shape parameter, positive.
beta.a b : float or array | Parameters, positive.
df : float or array | Degrees of freedom, positive.
alpha : array of shape (n,) | Concentrations, positive.
mean : array of shape (n,) | Mean.
cov : array of shape (n, n) | Covariance, symmetric and positive definite.
p : float or array | Probability of True.
logits : array | Logarithms of the probabilities, up to a constant.
axis : int | Axis of the categories.
permutation.axis : int | Axis to permute.
x : array or int | Array, or number of integers.
seed : int | Seed, of which the low 64 bits count.
num : int | Number of new keys.
data : int or integer array | Integer, of which the low 32 bits count.
"""

_RESULTS = r"""
uniform normal exponential gumbel laplace logistic cauchy : array of `shape` and `dtype` | Random numbers.
truncated_normal gamma beta t : array of `shape` and `dtype` | Random numbers.
dirichlet : array of shape (\*shape, n) | Points, along the last axis. The coordinates of a point add up to 1.
multivariate_normal : array of shape (\*shape, n) | Vectors, along the last axis.
bernoulli : boolean array of `shape` | Random booleans.
rademacher : array of `shape` and `dtype` | Random signs.
randint : array of `shape` and `dtype` | Random integers.
categorical : int64 array | Indices, with the shape of `logits` without `axis`, and `shape` in front.
permutation : array | Permuted array, or permuted integers of shape (x,).
key : uint32 array of shape (2,) | The high and the low 32 bits.
split : uint32 array of shape (num, 2) | New keys, one in each row.
fold_in : uint32 array of shape (2,) | New key.
bits : uint32 array of `shape` | Random words.
"""

RANDOM_DOCS = DocTable(_PARAMETERS, _RESULTS)
