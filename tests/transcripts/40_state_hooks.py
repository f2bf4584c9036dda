"""Hooks around the state of modules: when it is given, and when it is taken."""

nn = torch.nn


def made():
    return nn.Sequential(nn.Linear(2, 1), nn.Sequential(nn.Linear(1, 2, bias=False)))


# --- when a state is given
model = made()
first = model.register_state_dict_pre_hook(lambda module, prefix, keep: print("before", repr(prefix), keep))
inner = model[1].register_state_dict_pre_hook(lambda module, prefix, keep: print("inside", repr(prefix), keep))


def renamed(module, state, prefix, metadata):
    print("after", repr(prefix), list(state), metadata)
    for key in list(state):
        state["model." + key] = state.pop(key)


last = model.register_state_dict_post_hook(renamed)
model[1].register_state_dict_post_hook(
    lambda module, state, prefix, metadata: print("inner", repr(prefix), list(state))
)
print(list(model.state_dict()))
first.remove()
last.remove()
print(list(model.state_dict(prefix="p.", keep_vars=True)))
model.register_state_dict_post_hook(lambda module, state, prefix, metadata: state)
error(lambda: model.state_dict())
# --- before a state is taken
model = made()
state = {"model." + key: torch.ones_like(x) for key, x in model.state_dict().items()}
error(lambda: model.load_state_dict(state), until=": \n")


def without(module, state, prefix, metadata, strict, missing, unexpected, errors):
    print("before", repr(prefix), list(state), strict, missing, unexpected, errors)
    for key in list(state):
        state[key.removeprefix("model.")] = state.pop(key)


handle = model.register_load_state_dict_pre_hook(without)
model[1].register_load_state_dict_pre_hook(
    lambda module, state, prefix, *more: print("inside", prefix, list(state), more[1:])
)
print(model.load_state_dict(state), [x.sum().item() for x in model.parameters()], [*state])
handle.remove()
print(model.load_state_dict({"0.bias": torch.zeros(1), "1.0.other": torch.ones(1), "2.x": torch.ones(1)}, strict=False))
# --- after a state is taken
model = made()


def forgiving(module, keys):
    print("after", type(module).__name__, keys, model[0].bias.tolist())
    keys.missing_keys.clear()


handle = model.register_load_state_dict_post_hook(forgiving)
model[1][0].register_load_state_dict_post_hook(lambda module, keys: print("inner", keys.missing_keys))
print(model.load_state_dict({"0.bias": torch.tensor([3.0])}))
error(lambda: model.load_state_dict({"0.bias": torch.tensor([4.0]), "other": torch.ones(1)}))
handle.remove()
error(lambda: model.load_state_dict({"0.bias": torch.tensor([4.0])}))
model = nn.Linear(1, 1)
model.register_load_state_dict_post_hook(lambda module, keys: keys)
error(lambda: model.load_state_dict(model.state_dict()))
