"""Hooks on nodes of the graph."""

# --- a hook sees what the node got and what it gave
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = (x * 2).sum()
y.grad_fn.register_hook(lambda inputs, outputs: print(y.grad_fn.name(), inputs, outputs))
y.backward()
print(x.grad)

# --- a hook replaces the gradients of the inputs
a = torch.tensor(2.0, requires_grad=True)
b = torch.tensor(3.0, requires_grad=True)
c = a * b
c.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] * 100, None if len(inputs) < 2 else inputs[1] * 0))
c.backward()
print(a.grad, b.grad)

# --- absent gradients are None
a = torch.tensor(2.0, requires_grad=True)
c = a * torch.tensor(3.0)
c.grad_fn.register_hook(lambda inputs, outputs: print(inputs, outputs))
c.backward()

# --- hooks run in order
x = torch.tensor(1.0, requires_grad=True)
y = x.exp()
y.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] * 2,))
y.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] + 1,))
y.grad_fn.register_hook(lambda inputs, outputs: print(f"{inputs[0].item():.4f}"))
y.backward()
print(x.grad)

# --- a prehook sees and replaces the gradients of the outputs
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = x * 2
y.grad_fn.register_prehook(lambda grads: print("pre", grads))
y.grad_fn.register_prehook(lambda grads: (grads[0] * 10,))
y.sum().backward()
print(x.grad)

# --- prehooks of a node with several outputs
x = torch.tensor([1.0, 2.0], requires_grad=True)
a, b = x.unbind()
a.grad_fn.register_prehook(lambda grads: print(grads))
(a * 5).backward()
print(x.grad)

# --- handles remove hooks
x = torch.tensor(1.0, requires_grad=True)
y = x * 2
handle = y.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] * 100, None))
other = y.grad_fn.register_prehook(lambda grads: (grads[0] * 100,))
handle.remove()
other.remove()
y.backward()
print(x.grad)

# --- hooks on AccumulateGrad
x = torch.tensor(1.0, requires_grad=True)
node = (x * 1).grad_fn.next_functions[0][0]
node.register_prehook(lambda grads: (grads[0] * 5,))
node.register_hook(lambda inputs, outputs: print("accumulated", inputs, outputs, x.grad))
(x * 2).backward()
print(x.grad)

# --- a hook that returns the wrong number
x = torch.tensor(1.0, requires_grad=True)
y = x * 2
y.grad_fn.register_hook(lambda inputs, outputs: (inputs[0],))
error(lambda: y.backward(), first="hook '<lambda>' has returned an incorrect number of values")

# --- all hooks and their order
x = torch.tensor(1.0, requires_grad=True)
y = x * 2
y.grad_fn.register_hook(lambda inputs, outputs: print("node hook"))
y.grad_fn.register_prehook(lambda grads: print("node prehook"))
y.register_hook(lambda grad: print("tensor hook"))
y.retain_grad()
x.register_hook(lambda grad: print("leaf hook"))
x.register_post_accumulate_grad_hook(lambda p: print("post accumulate"))
y.backward()
print(y.grad, x.grad)

# --- hooks do not run when a node is called by hand
x = torch.tensor(1.0, requires_grad=True)
y = x * 2
y.grad_fn.register_hook(lambda inputs, outputs: print("hook", inputs))
print(y.grad_fn(torch.tensor(1.0)))

# --- nodes are found from both ends
x = torch.ones(1, requires_grad=True)
y = x * 2
edge = torch.autograd.graph.get_gradient_edge(y)
print(edge.node is y.grad_fn, edge.output_nr, type(edge).__name__)
edge = torch.autograd.graph.get_gradient_edge(x)
print(edge.node.name(), edge.node.variable is x, edge.output_nr)
error(lambda: torch.autograd.graph.get_gradient_edge(torch.ones(1)))

# --- an edge stands for a tensor in grad
x = torch.tensor(2.0, requires_grad=True)
h = x * 3
edge = torch.autograd.graph.get_gradient_edge(h)
y = h**2
del h
print(torch.autograd.grad(y, edge, retain_graph=True))
print(torch.autograd.grad(y, [x, edge]))

# --- an edge stands for a tensor in backward
x = torch.tensor(2.0, requires_grad=True)
y = x**3
edge = torch.autograd.graph.get_gradient_edge(y)
torch.autograd.backward(edge, torch.tensor(1.0))
print(x.grad)
print(torch.autograd.grad(torch.autograd.graph.get_gradient_edge(x**3), x, grad_outputs=torch.tensor(1.0)))

# --- edges of outputs of one node
x = torch.arange(2.0, requires_grad=True)
a, b = x.unbind()
edges = [torch.autograd.graph.get_gradient_edge(t) for t in (a, b)]
print([edge.output_nr for edge in edges], edges[0].node is edges[1].node)
print(torch.autograd.grad(a * 3 + b * 4, edges))
