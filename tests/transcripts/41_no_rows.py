"""Values that are written to no rows: their tape leads to zeros, not to None."""


def gradient(write):
    w = torch.ones(3, 2, requires_grad=True)
    x = torch.ones(4, 3)
    none = torch.zeros(0, dtype=torch.int64)
    y = write(torch.ones(4, 2), x, w, none)
    y.sum().backward()
    return w.grad, y


# --- assigned
def by_index(y, x, w, none):
    y[none] = x[none] @ w
    return y


def by_index_and_slice(y, x, w, none):
    y[none, :] = x[none, :] @ w
    return y


def by_mask(y, x, w, none):
    y[x[:, 0] > 5] = x[x[:, 0] > 5] @ w
    return y


def in_columns(y, x, w, none):
    y[:, none] = (x @ w)[:, none]
    return y


def a_value_of_no_axes(y, x, w, none):
    y[none] = w[0, 0]
    return y


for write in (by_index, by_index_and_slice, by_mask, in_columns, a_value_of_no_axes):
    print(write.__name__, *gradient(write))

# --- by functions
sizes = (0, 2)
for name, write in (
    ("masked_scatter", lambda y, x, w, none: y.masked_scatter(y > 1, x[none] @ w)),
    ("masked_scatter_", lambda y, x, w, none: y.masked_scatter_(y > 1, x[none] @ w)),
    ("index_put", lambda y, x, w, none: y.index_put((none,), x[none] @ w)),
    ("index_put, added", lambda y, x, w, none: y.index_put((none,), x[none] @ w, accumulate=True)),
    ("index_copy", lambda y, x, w, none: y.index_copy(0, none, x[none] @ w)),
    ("index_copy_", lambda y, x, w, none: y.index_copy_(0, none, x[none] @ w)),
    ("index_add", lambda y, x, w, none: y.index_add(0, none, x[none] @ w)),
    ("index_fill", lambda y, x, w, none: y.index_fill(0, none, w[0, 0])),
    ("masked_fill", lambda y, x, w, none: y.masked_fill(y > 1, w[0, 0])),
    ("scatter", lambda y, x, w, none: y.scatter(0, none.reshape(sizes), x[none] @ w)),
    ("scatter_", lambda y, x, w, none: y.scatter_(0, none.reshape(sizes), x[none] @ w)),
    ("scatter_add", lambda y, x, w, none: y.scatter_add(0, none.reshape(sizes), x[none] @ w)),
    ("scatter_reduce sum", lambda y, x, w, none: y.scatter_reduce(0, none.reshape(sizes), x[none] @ w, "sum")),
    ("scatter_reduce amax", lambda y, x, w, none: y.scatter_reduce(0, none.reshape(sizes), x[none] @ w, "amax")),
    ("slice_scatter", lambda y, x, w, none: y.slice_scatter(x[none] @ w, 0, 1, 1)),
    ("copy_ of a slice", lambda y, x, w, none: (y[:0].copy_(x[none] @ w), y)[1]),
):
    print(name, *gradient(write))

# --- an optimizer moves the layer that no row went to
w = torch.ones(3, 2, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1, weight_decay=1.0)
none = torch.zeros(0, dtype=torch.int64)
y = torch.zeros(4, 2)
y[none] = torch.ones(4, 3)[none] @ w
y.sum().backward()
optimizer.step()
print(w)

# --- values that were there stay, and so do the signs of their zeros
w = torch.ones(2, requires_grad=True)
y = torch.tensor([-0.0, 1.0])
y[torch.zeros(2, dtype=torch.bool)] = w[:0]
print(torch.signbit(y), y.requires_grad, y.grad_fn.name())
n = torch.tensor([1, 2])
n[torch.zeros(0, dtype=torch.int64)] = w[:0].long()
print(n, n.requires_grad)
