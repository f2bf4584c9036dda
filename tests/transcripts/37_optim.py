"""Optimizers and schedules: parameters and rates after some steps, states, errors."""

import copy

optim = torch.optim


def problem():
    w = torch.tensor([[1.0, -2.0, 0.5], [0.25, 3.0, -1.5]], requires_grad=True)
    b = torch.tensor([0.5, -0.25], requires_grad=True)
    return w, b


def loss_of(w, b):
    x = torch.tensor([[0.1, 0.7, -0.3], [1.2, -0.4, 0.9], [-0.6, 0.2, 0.8]])
    return ((x @ w.T + b).tanh() ** 2).sum() + 0.1 * (w**4).sum()


def train(make, steps=7):
    w, b = problem()
    optimizer = make([w, b])
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(w, b)
        loss.backward()
        optimizer.step()
    print(loss)
    print(w.detach())
    print(b.detach())
    for number, state in optimizer.state_dict()["state"].items():
        print(number, state)
    print(optimizer.state_dict()["param_groups"])


def rates(make, steps=14, **settings):
    w, b = problem()
    optimizer = optim.SGD([{"params": [w]}, {"params": [b], "lr": 0.03}], lr=0.1, momentum=0.9, **settings)
    schedule = make(optimizer)
    for _ in range(steps):
        print([f"{rate:.15g}" for rate in schedule.get_last_lr()], f"{optimizer.param_groups[0]['momentum']:.15g}")
        optimizer.step()
        schedule.step()


# --- SGD
train(lambda params: optim.SGD(params))
train(lambda params: optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=0.1))
train(lambda params: optim.SGD(params, lr=0.05, momentum=0.9, dampening=0.5))
train(lambda params: optim.SGD(params, lr=0.05, momentum=0.8, nesterov=True))
train(lambda params: optim.SGD(params, lr=0.001, momentum=0.8, maximize=True))

# --- Adam
train(lambda params: optim.Adam(params))
train(lambda params: optim.Adam(params, lr=0.1, betas=(0.8, 0.9), weight_decay=0.1, amsgrad=True))
train(lambda params: optim.Adam(params, lr=0.1, eps=0.1, maximize=True))
train(lambda params: optim.Adam(params, lr=0.1, weight_decay=0.1, decoupled_weight_decay=True))

# --- AdamW
train(lambda params: optim.AdamW(params, lr=0.05))
train(lambda params: optim.AdamW(params, lr=0.05, weight_decay=0.5, amsgrad=True))

# --- Adamax
train(lambda params: optim.Adamax(params, lr=0.05, weight_decay=0.1))

# --- NAdam
train(lambda params: optim.NAdam(params, lr=0.05, weight_decay=0.1))
train(lambda params: optim.NAdam(params, lr=0.05, weight_decay=0.1, decoupled_weight_decay=True, momentum_decay=0.1))

# --- RAdam
train(lambda params: optim.RAdam(params, lr=0.05, weight_decay=0.1))
train(lambda params: optim.RAdam(params, lr=0.05, betas=(0.8, 0.9), weight_decay=0.1, decoupled_weight_decay=True))

# --- RMSprop
train(lambda params: optim.RMSprop(params))
train(lambda params: optim.RMSprop(params, alpha=0.9, momentum=0.5, centered=True, weight_decay=0.1))

# --- Adagrad
train(lambda params: optim.Adagrad(params, lr=0.1))
train(lambda params: optim.Adagrad(params, lr=0.1, lr_decay=0.2, initial_accumulator_value=0.3, weight_decay=0.1))

# --- Adadelta
train(lambda params: optim.Adadelta(params))
train(lambda params: optim.Adadelta(params, lr=0.5, rho=0.8, eps=1e-4, weight_decay=0.1))

# --- LBFGS


def descend(**settings):
    w, b = problem()
    optimizer = optim.LBFGS([w, b], **settings)

    def closure():
        optimizer.zero_grad()
        loss = loss_of(w, b)
        loss.backward()
        return loss

    print([f"{optimizer.step(closure).item():.6g}" for _ in range(3)])
    state = optimizer.state_dict()["state"][0]
    print(list(state), state["func_evals"], state["n_iter"], len(state["old_dirs"]), state["t"])


descend()
descend(line_search_fn="strong_wolfe")
descend(lr=0.1, history_size=2, max_iter=5)

# --- groups
w, b = problem()
optimizer = optim.Adam([{"params": [w]}, {"params": b, "lr": 0.5, "betas": (0.5, 0.5)}], lr=0.1)
print(optimizer)
loss_of(w, b).backward()
optimizer.step()
print(w.detach())
print(b.detach())
optimizer.add_param_group({"params": [torch.ones(2, requires_grad=True)]})
print(len(optimizer.param_groups), optimizer.param_groups[2]["lr"])
named = optim.SGD([("w", w), ("b", b)], lr=0.1)
print(named.state_dict())

# --- gradients that are taken away or set to zero
w, b = problem()
optimizer = optim.SGD([w, b], lr=0.1)
loss_of(w, b).backward()
optimizer.zero_grad(set_to_none=False)
print(w.grad, b.grad)
optimizer.zero_grad()
print(w.grad, b.grad)
optimizer.step()
print(w.detach())

# --- a closure and hooks
w, b = problem()
optimizer = optim.SGD([w, b], lr=0.1)


def closure():
    optimizer.zero_grad()
    loss = loss_of(w, b)
    loss.backward()
    return loss


before = optimizer.register_step_pre_hook(lambda o, args, kwargs: print("before", len(args), kwargs, w.grad is None))
after = optimizer.register_step_post_hook(lambda o, args, kwargs: print("after", len(args), kwargs, w.grad is None))
print(optimizer.step(closure))
before.remove()
print(optimizer.step(closure=closure))
optimizer.register_state_dict_post_hook(lambda o, state: {"groups": len(state["param_groups"])})
print(optimizer.state_dict())

# --- a state goes from one optimizer to another
w, b = problem()
first = optim.Adam([w, b], lr=0.1)
for _ in range(3):
    first.zero_grad()
    loss_of(w, b).backward()
    first.step()
w2, b2 = w.detach().clone().requires_grad_(), b.detach().clone().requires_grad_()
second = optim.Adam([w2, b2], lr=0.7)
second.load_state_dict(copy.deepcopy(first.state_dict()))
print(second.param_groups[0]["lr"])
for x, y, optimizer in ((w, b, first), (w2, b2, second)):
    optimizer.zero_grad()
    loss_of(x, y).backward()
    optimizer.step()
print(torch.equal(w, w2), torch.equal(b, b2))

# --- errors
w, b = problem()
error(lambda: optim.SGD([]))
error(lambda: optim.SGD(w), first="params argument given to the optimizer should be an iterable of Tensors or dicts")
error(lambda: optim.SGD([1.0]))
error(lambda: optim.SGD([w * 2]))
error(lambda: optim.SGD([{"params": [w]}, {"params": [b, w]}]))
error(lambda: optim.SGD([{"params": {w, b}}]))
error(lambda: optim.SGD([w], lr=-1.0))
error(lambda: optim.SGD([w], momentum=-1.0))
error(lambda: optim.SGD([w], weight_decay=-1.0))
error(lambda: optim.SGD([w], nesterov=True))
error(lambda: optim.Adam([w], lr=-1.0))
error(lambda: optim.Adam([w], eps=-1.0))
error(lambda: optim.Adam([w], betas=(1.0, 0.9)))
error(lambda: optim.Adam([w], betas=(0.9, 1.0)))
error(lambda: optim.Adam([w], weight_decay=-1.0))
error(lambda: optim.RMSprop([w], alpha=-1.0))
error(lambda: optim.RMSprop([w], momentum=-1.0))
error(lambda: optim.Adagrad([w], lr_decay=-1.0))
error(lambda: optim.Adagrad([w], initial_accumulator_value=-1.0))
error(lambda: optim.Adadelta([w], rho=1.5))
error(lambda: optim.NAdam([w], momentum_decay=-1.0))
error(lambda: optim.LBFGS([{"params": [w]}, {"params": [b]}]))
error(lambda: optim.SGD([w]).load_state_dict(optim.SGD([w, b]).state_dict()))
error(lambda: optim.SGD([w]).load_state_dict(optim.SGD([{"params": [w]}, {"params": [b]}]).state_dict()))
error(lambda: optim.SGD([w]).add_param_group([b]))
warned(lambda: optim.SGD([w, w]), first="optimizer contains a parameter group with duplicate parameters")

# --- schedules by factors
schedules = optim.lr_scheduler
rates(lambda o: schedules.LambdaLR(o, [lambda n: 0.9**n, lambda n: 1 / (1 + n)]))
rates(lambda o: schedules.MultiplicativeLR(o, lambda n: 0.95))
rates(lambda o: schedules.StepLR(o, 3, gamma=0.5))
rates(lambda o: schedules.MultiStepLR(o, [2, 5, 5, 9], gamma=0.5))
rates(lambda o: schedules.ConstantLR(o))
rates(lambda o: schedules.LinearLR(o, start_factor=0.5, end_factor=0.1, total_iters=7))
rates(lambda o: schedules.ExponentialLR(o, 0.9))
rates(lambda o: schedules.PolynomialLR(o, total_iters=8, power=2.0))

# --- schedules by cosines and cycles
schedules = optim.lr_scheduler
rates(lambda o: schedules.CosineAnnealingLR(o, 5, eta_min=0.01))
rates(lambda o: schedules.CosineAnnealingWarmRestarts(o, 3))
rates(lambda o: schedules.CosineAnnealingWarmRestarts(o, 2, T_mult=2, eta_min=0.01))
rates(lambda o: schedules.OneCycleLR(o, 1.0, total_steps=15))
rates(lambda o: schedules.OneCycleLR(o, [1.0, 2.0], epochs=3, steps_per_epoch=5, three_phase=True))
rates(lambda o: schedules.OneCycleLR(o, 1.0, total_steps=15, anneal_strategy="linear", cycle_momentum=False))
rates(lambda o: schedules.CyclicLR(o, 0.1, 1.0, step_size_up=4))
rates(lambda o: schedules.CyclicLR(o, [0.1, 0.2], 1.0, step_size_up=3, step_size_down=5, mode="triangular2"))
rates(lambda o: schedules.CyclicLR(o, 0.1, 1.0, step_size_up=4, mode="exp_range", gamma=0.9))

# --- schedules of schedules
schedules = optim.lr_scheduler


def three(o):
    warm, fall = schedules.LinearLR(o, 0.1, total_iters=3), schedules.CosineAnnealingLR(o, 6)
    return schedules.SequentialLR(o, [warm, fall, schedules.ExponentialLR(o, 0.5)], [3, 9])


rates(three)
rates(lambda o: schedules.ChainedScheduler([schedules.ConstantLR(o, 0.1, 4), schedules.ExponentialLR(o, 0.9)]))

# --- a schedule by a metric
w, b = problem()
optimizer = optim.SGD([{"params": [w]}, {"params": [b], "lr": 0.03}], lr=0.1)
schedule = optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1, cooldown=1, factor=0.5, min_lr=[0.01, 0.02])
for loss in (3.0, 2.0, 2.0, 2.0, 1.9, 1.9, 1.9, 1.9, 1.9, 1.9, 1.9):
    schedule.step(loss)
    print([f"{rate:.15g}" for rate in schedule.get_last_lr()], schedule.num_bad_epochs, schedule.best)

# --- a schedule goes on where its state was saved, and is set to an epoch
w, b = problem()
optimizer = optim.SGD([w, b], lr=0.1)
schedule = optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
for _ in range(3):
    optimizer.step()
    schedule.step()
print({key: x for key, x in schedule.state_dict().items() if key in ("step_size", "gamma", "last_epoch", "_last_lr")})
other = optim.SGD([w, b], lr=0.1)
following = optim.lr_scheduler.StepLR(other, 2, gamma=0.5)
following.load_state_dict(schedule.state_dict())
other.load_state_dict(optimizer.state_dict())
other.step()
following.step()
print(following.get_last_lr(), following.last_epoch)
schedules = optim.lr_scheduler
error(lambda: schedules.StepLR(3, 2), until=" is not an Optimizer")
error(lambda: schedules.LambdaLR(optimizer, [lambda n: 1.0] * 3))
error(lambda: schedules.ConstantLR(optimizer, factor=1.5))
error(lambda: schedules.LinearLR(optimizer, start_factor=0.0))
error(lambda: schedules.LinearLR(optimizer, end_factor=1.5))
error(lambda: schedules.CosineAnnealingWarmRestarts(optimizer, 0))
error(lambda: schedules.OneCycleLR(optimizer, 1.0))
error(lambda: schedules.OneCycleLR(optimizer, 1.0, total_steps=-1))
error(lambda: schedules.ReduceLROnPlateau(optimizer, factor=1.0))
error(lambda: schedules.ReduceLROnPlateau(optimizer, mode="mean"))
error(lambda: schedules.SequentialLR(optimizer, [], []))
fresh = optim.SGD([w, b], lr=0.1)
early = schedules.StepLR(fresh, 2)
warned(early.step, first="Detected call of `lr_scheduler.step()` before `optimizer.step()`.")
