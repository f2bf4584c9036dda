"""Table of the hyperparameters of optimizers and schedules, for their docstrings."""

from __future__ import annotations

from tracegrad.utils.doc_table import DocTable

__all__ = ["OPTIM_DOCS"]

_PARAMETERS = """
T_0 : int | Number of epochs of the first cycle.
T_max : int | Number of epochs of half a wave.
T_mult : int | Factor between the lengths of one cycle and the next.
adjust_lr_fn : {"original", "match_rms_adamw"} | How the learning rate depends on the shape of a matrix.
alpha : float | Decay of the mean of squares.
amsgrad : bool | Whether the largest mean of squares is used.
anneal_epochs : int | Number of epochs until the last rate.
anneal_strategy : {"cos", "linear"} | Form of the descent.
avg_fn : callable | Function of an average, a value and the number of averaged values.
base_lr : float or sequence of float | Lower bound of the rate, for each group.
base_momentum : float or sequence of float | Lower bound of the momentum, for each group.
beta2_decay : float | Exponent of the step number in the share of a new gradient in the mean of squares.
betas : pair of float | Decays of the mean of gradients and of the mean of squares.
capturable : bool | Without effect.
centered : bool | Whether the mean of the gradients is subtracted.
cooldown : int | Number of epochs after a reduction in which bad epochs are not counted.
cycle_momentum : bool | Whether the momentum goes the other way.
d : float | Root mean square of a step above which the step is scaled.
dampening : float | Share of the gradient that momentum leaves out.
decay : float | Share of the average that stays.
decoupled_weight_decay : bool | Whether weight decay is taken from the parameter instead of added to the gradient.
defaults : dict | Hyperparameters of groups that have none.
device : str or device | Device, which is "cpu".
differentiable : bool | Not supported.
div_factor : float | Ratio of `max_lr` and the initial rate.
end : float | Final rate.
end_factor : float | Final factor.
epochs : int | Number of epochs.
eps : float | Small number that avoids a division by zero.
eta_min : float | Smallest rate.
etas : pair of float | Factors of a step that shrinks and of a step that grows.
factor : float | Factor of the rate.
final_div_factor : float | Ratio of the initial rate and the final rate.
foreach : bool | Without effect.
fused : bool | Without effect.
gamma : float | Factor of the rate.
grads : pytree of array | Gradients.
history_size : int | Number of steps from which the Hessian is estimated.
init : callable | Function `init(params)` to the initial state.
initial_accumulator_value : float | Initial sum of squares.
lambd : float | Decay of the parameter.
last_epoch : int | Number of the last epoch of a run that is resumed; -1 for a new run.
line_search_fn : {None, "strong_wolfe"} | Line search.
loader : iterable | Batches.
lr : float or Tensor | Learning rate.
lr_decay : float | Decay of the learning rate.
lr_lambda : callable or sequence of callable | Function of the epoch to a factor, for each group.
max_eval : int | Largest number of evaluations per step; by default 5/4 of `max_iter`.
max_iter : int | Largest number of iterations per step.
max_lr : float or sequence of float | Largest rate, for each group.
max_momentum : float or sequence of float | Largest momentum, for each group.
max_norm : float | Largest norm.
maximize : bool | Whether the objective is maximized.
milestones : sequence of int | Epochs, in ascending order.
min_lr : float or sequence of float | Smallest rate, for each group.
mode : str | Mode.
model : Module | Model.
momentum : float | Momentum.
momentum_decay : float | Decay of the momentum.
multi_avg_fn : callable | The same for lists, in place.
nesterov : bool | Whether the momentum is Nesterov's.
ns_coefficients : triple of float | Coefficients of the Newton-Schulz iteration.
ns_steps : int | Number of iterations.
optimizer : Optimizer | Optimizer whose rates are set.
params : iterable | Tensors, pairs of a name and a Tensor, or dicts with "params" and the hyperparameters of a group.
patience : int | Number of bad epochs that are tolerated.
pct_start : float | Share of the steps in which the rate rises.
power : float | Exponent.
rate : float | Factor.
rho : float | Decay of the means of squares.
scale_fn : callable, optional | Function to the factor of the amplitude.
scale_mode : {"cycle", "iterations"} | Argument of `scale_fn`.
schedulers : sequence of LRScheduler | Schedules.
start_factor : float | First factor.
step_size : int | Number of epochs.
step_size_down : int | Number of steps of the descent; by default `step_size_up`.
step_size_up : int | Number of steps of the ascent.
step_sizes : pair of float | Smallest and largest step.
steps : int | Number of steps.
steps_per_epoch : int | Number of steps of an epoch.
swa_lr : float or list of float | Last rate, or one for each group.
t0 : float | Step from which the mean of the parameter is taken.
three_phase : bool | Whether the rate returns to the initial rate in a phase of its own.
threshold : float | Smallest difference that counts as an improvement.
threshold_mode : {"rel", "abs"} | Whether the threshold is relative.
tolerance_change : float | Change of the parameters or of the loss at which the iteration ends.
tolerance_grad : float | Largest gradient element at which the iteration ends.
total_iters : int | Number of epochs.
total_steps : int | Number of steps.
update : callable | Function `update(grads, state, params)` to the new parameters and the new state.
use_buffers : bool | Whether buffers are averaged.
warmup : int | Number of steps in which the rate rises from 0.
weight_decay : float | Factor of the parameter that is added to the gradient.

Adafactor.eps : pair of float | Smallest mean of squares, by default that of the dtype, and smallest scale.
Muon.eps : float | Smallest norm of a gradient.
Adafactor.lr : float or Tensor | Largest relative step size.
AdamW.weight_decay adamw.weight_decay : float | Factor of the parameter that is taken from it, times the learning rate.
ASGD.alpha : float | Exponent of the decay of the learning rate.
ASGD.maximize SGD.maximize : bool | Whether the objective is maximized.
CyclicLR.mode : {"triangular", "triangular2", "exp_range"} | Form of the cycles.
ChainedScheduler.optimizer : Optimizer | Optimizer of the schedules; by default that of the first one.
ReduceLROnPlateau.mode : {"min", "max"} | Whether the metric is minimized or maximized.
ReduceLROnPlateau.eps : float | Smallest change of a rate that is made.
sgd.lr adam.lr adamw.lr rmsprop.lr adagrad.lr : float or callable | Learning rate, or a function of the step number.
constant.lr linear.lr exponential.lr cosine.lr : float | Rate.
"""

_RESULTS = """
get_ema_avg_fn get_swa_avg_fn get_ema_multi_avg_fn get_swa_multi_avg_fn : callable | Function of an average.
update_bn : None | Nothing.
sgd adam adamw rmsprop adagrad : Pure | Pair `(init, update)` of pure functions.
clip_by_global_norm : pytree of array | Scaled gradients.
constant linear exponential cosine : callable | Function of the step number to the rate.
"""

OPTIM_DOCS = DocTable(_PARAMETERS, _RESULTS)
