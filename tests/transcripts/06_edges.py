"""The tape: nodes, their edges, and the leaves they end in."""


def edges(node):
    for following, number in node.next_functions:
        print(" ", following.name() if following else None, number)


# --- an edge for each operand
a = torch.tensor(2.0, requires_grad=True)
b = torch.tensor(3.0, requires_grad=True)
c = a * b
print(c.grad_fn.next_functions)
edges(c.grad_fn)

# --- operands that need no gradient have no edge
a = torch.tensor(2.0, requires_grad=True)
edges((a * torch.tensor(3.0)).grad_fn)
edges((torch.tensor(3.0) * a).grad_fn)
edges((a * 3).grad_fn)
edges((a - 1).grad_fn)
edges((a**2).grad_fn)
edges((a**a).grad_fn)
edges(a.exp().grad_fn)

# --- a chain down to the leaf
a = torch.tensor([2.0, 3.0], requires_grad=True)
q = (3 * a**3 - a.sin()).sum()
node = q.grad_fn
while node is not None:
    print(node.name())
    node = node.next_functions[0][0] if node.next_functions else None

# --- walking the whole graph
x = torch.ones(2, requires_grad=True)
w = torch.ones(2, requires_grad=True)
b = torch.zeros(2, requires_grad=True)


def walk(node, depth=0):
    print(". " * depth + node.name())
    for following, _ in node.next_functions:
        if following is not None:
            walk(following, depth + 1)


walk((w * x.tanh() + b).mean().grad_fn)

# --- AccumulateGrad knows its variable
a = torch.tensor([1.0], requires_grad=True)
node = (a * 2).grad_fn.next_functions[0][0]
print(node, node.name(), node.variable is a, node.next_functions)
print(node.variable, node.variable.grad)

# --- one AccumulateGrad for each leaf
a = torch.tensor(1.0, requires_grad=True)
first, second = (a * 2), (a * 3)
print(first.grad_fn.next_functions[0][0] is second.grad_fn.next_functions[0][0])
print((a * a).grad_fn.next_functions[0][0] is (a * a).grad_fn.next_functions[1][0])

# --- the node of a shared operand is the same object
a = torch.tensor(1.0, requires_grad=True)
b = a.exp()
c = b * b
print(c.grad_fn.next_functions[0][0] is b.grad_fn, c.grad_fn.next_functions[1][0] is b.grad_fn)
print(b.grad_fn is b.grad_fn, c.grad_fn is c.grad_fn)

# --- input numbers of the outputs of one node
x = torch.arange(3.0, requires_grad=True)
a, b, c = x.unbind()
print(a.output_nr, b.output_nr, c.output_nr, a.grad_fn is b.grad_fn)
edges((a * c).grad_fn)
edges((c + b).grad_fn)
edges(torch.stack([c, a, b]).grad_fn)
edges(a.grad_fn)

# --- inputs in a list have an edge each
x, y = torch.ones(1, requires_grad=True), torch.ones(1)
edges(torch.cat([x, y, x]).grad_fn)
edges(torch.stack([x * 2, x]).grad_fn)

# --- edges of operations with three operands
x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
edges(torch.addcmul(x, y, y.exp()).grad_fn)
edges(torch.where(x > 0, x, y * 2).grad_fn)
edges(torch.lerp(x, y, 0.5).grad_fn)
m = torch.ones(2, 2, requires_grad=True)
edges(torch.addmm(torch.ones(2), m, m.t()).grad_fn)

# --- nodes of classes
x = torch.ones(2, requires_grad=True)
node = (x * 2).grad_fn
print(type(node).__name__, isinstance(node, torch.autograd.graph.Node), node.name())
print(isinstance(node.next_functions, tuple), isinstance(node.next_functions[0], tuple))
print(isinstance(node.next_functions[0][0], torch.autograd.graph.Node), isinstance(x, torch.autograd.graph.Node))

# --- metadata is a dictionary of one's own
x = torch.ones(2, requires_grad=True)
node = (x * 2).grad_fn
print(node.metadata)
node.metadata["note"] = "doubles"
print(node.metadata, x.exp().grad_fn.metadata)

# --- nothing is recorded for constants and without grad mode
x = torch.ones(2, requires_grad=True)
print((x.detach() * 2).grad_fn, (x > 0).grad_fn, x.argmax().grad_fn, torch.ones_like(x).grad_fn)
with torch.no_grad():
    print((x * 2).grad_fn)

# --- the graph of a linear layer with a loss
x = torch.ones(5)
y = torch.zeros(3)
w = torch.full((5, 3), 0.1, requires_grad=True)
b = torch.zeros(3, requires_grad=True)
z = torch.matmul(x, w) + b
loss = torch.nn.functional.binary_cross_entropy_with_logits(z, y)
print(z.grad_fn)
print(loss.grad_fn)
edges(loss.grad_fn)

# --- views and slices on the tape
x = torch.arange(6.0, requires_grad=True)
y = x.view(2, 3)[1][1:].sum()
node = y.grad_fn
while node is not None:
    print(node.name())
    node = node.next_functions[0][0] if node.next_functions else None

# --- conversions on the tape
x = torch.ones(2, requires_grad=True)
edges((x.float() * 2).grad_fn)
edges((x.float().double().sum()).grad_fn)

# --- topological numbers grow
x = torch.ones(2, requires_grad=True)
a = x * 2
b = a + 1
print(b.grad_fn._sequence_nr() > a.grad_fn._sequence_nr())

# --- nodes can be compared hashed and kept
x = torch.ones(2, requires_grad=True)
a = x * 2
b = a + 1
seen = {a.grad_fn, b.grad_fn, b.grad_fn.next_functions[0][0]}
print(len(seen), a.grad_fn == b.grad_fn.next_functions[0][0], a.grad_fn == b.grad_fn)

# --- a name for the number of the inputs
x = torch.ones(2, requires_grad=True)
print((x * 2).grad_fn.next_functions[0][1], len((x * 2).grad_fn.next_functions), len(x.exp().grad_fn.next_functions))
print(len(torch.cat([x, x, x]).grad_fn.next_functions), len((x + x).grad_fn.next_functions))
