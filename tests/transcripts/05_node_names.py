"""Names of nodes: one for each operation."""

F = torch.nn.functional
x = torch.tensor([0.2, 0.5, 0.8], requires_grad=True)
y = torch.tensor([0.3, 0.6, 0.9], requires_grad=True)
m = torch.tensor([[2.0, 1.0], [1.0, 3.0]], requires_grad=True)
i = torch.tensor([0, 2])


def names(expressions):
    for expression in expressions.replace("\n", " ").split("; "):
        try:
            print(expression.strip(), "->", eval(expression.strip()).grad_fn.name())
        except Exception as raised:
            print(expression.strip(), "->", type(raised).__name__, raised)


# --- operators
names("x + y; x - y; x * y; x / y; x**y; -x; abs(x); m @ m; x @ y; m @ m[0]")
names("x + 1; x - 1; x * 2; x / 2; x**2; 1 + x; 1 - x; 2 * x; 2**x; x % y; x % 2")

# --- exponentials and logarithms
names("x.exp(); x.exp2(); x.expm1(); x.log(); x.log2(); x.log10(); x.log1p(); torch.logaddexp(x, y)")
names("x.sigmoid(); torch.logit(x); torch.xlogy(x, y); x.logsumexp(0); x.softmax(0); x.log_softmax(0)")

# --- trigonometry
names("x.sin(); x.cos(); x.tan(); x.asin(); x.acos(); x.atan(); torch.atan2(x, y); torch.sinc(x)")
names("x.sinh(); x.cosh(); x.tanh(); x.asinh(); torch.acosh(x + 2); x.atanh(); torch.hypot(x, y)")

# --- powers and roots
names("x.sqrt(); x.rsqrt(); x.square(); x.reciprocal(); x.pow(2); x.pow(y); torch.pow(2, x)")

# --- rounding and signs
names("x.floor(); x.ceil(); x.round(); x.trunc(); x.frac(); x.sign(); x.abs(); x.neg()")
names("torch.fmod(x, y); torch.remainder(x, y); torch.copysign(x, y); torch.nan_to_num(x)")

# --- maxima and choices
names("torch.maximum(x, y); torch.minimum(x, y); torch.fmax(x, y); torch.fmin(x, y); torch.max(x, y); torch.min(x, y)")
names("x.clamp(0, 0.5); x.clamp(min=0.1); torch.where(x > 0.4, x, y); torch.lerp(x, y, 0.5)")

# --- special functions
names("x.relu(); x.erf(); x.erfc(); torch.erfinv(x); x.lgamma(); x.digamma(); torch.special.expit(x)")

# --- fused arithmetic
names("torch.addcmul(x, x, y); torch.addcdiv(x, x, y); torch.addmm(m, m, m); torch.addmv(m[0], m, m[0])")
names("torch.addr(m, m[0], m[0]); torch.baddbmm(m[None], m[None], m[None]); torch.add(x, y, alpha=2); torch.rsub(x, 1)")

# --- reductions
names("x.sum(); x.sum(0); m.sum(dim=1, keepdim=True); x.mean(); m.mean(1); x.prod(); m.prod(1); x.std(); x.var()")
names("x.max(); x.min(); m.max(1)[0]; m.min(1).values; m.amax(1); m.amin(1); x.median(); x.norm(); m.norm(dim=1)")
names("x.cumsum(0); x.cumprod(0); x.logcumsumexp(0); m.trace(); torch.dist(x, y); x.nansum()")

# --- products
names("torch.mm(m, m); torch.mv(m, m[0]); torch.dot(x, y); torch.bmm(m[None], m[None]); torch.matmul(m, m)")
names("torch.linalg.cross(x, y); torch.vdot(x, y); torch.outer(x, y)")

# --- views
names(
    "m.view(4); m.reshape(4); m.t(); m.transpose(0, 1); m.permute(1, 0); m.mT; m.T; x.unsqueeze(0); m[None].squeeze(0)"
)
names("m.expand(3, 2, 2); m.flatten(); m.ravel(); m.diagonal(); x.view_as(y); m.swapaxes(0, 1); m.movedim(0, 1)")
names("x.narrow(0, 0, 2); m.select(0, 1); x.unfold(0, 2, 1); m.unbind(0)[0]; x.split(2)[0]; x.chunk(2)[0]")
names("torch.broadcast_to(x, (2, 3)); x.expand_as(torch.ones(2, 3)); m[None].squeeze(); torch.squeeze(x)")

# --- basic indexing
names("x[0]; x[1:]; x[None]; x[...]; m[:, 0]; m[0, 1]; m[0]; x[-1]; m[::2]; m[..., 1:]")

# --- joining and repeating
names("torch.cat([x, y]); torch.stack([x, y]); torch.hstack([x, y]); torch.vstack([x, y]); x.repeat(2); x.tile(2)")
names("x.roll(1); x.flip(0); m.rot90(); torch.diag(x); torch.diag_embed(x); m.tril(); m.triu()")

# --- advanced indexing
names("x[i]; x[x > 0.3]; x[[0, 1]]; x.index_select(0, i); x.gather(0, i); torch.take(x, i); x.masked_select(x > 0.3)")
names("x.masked_fill(x > 0.3, 0.0); x.index_add(0, i, y[:2]); x.scatter(0, i, y); x.scatter_add(0, i, y)")
names("x.index_put((i,), y[:2]); x.index_fill(0, i, 0.0); x.index_copy(0, i, y[:2]); x.sort()[0]; x.topk(2)[0]")

# --- linear algebra
names("torch.linalg.inv(m); torch.linalg.det(m); torch.linalg.slogdet(m)[1]; torch.linalg.solve(m, m[0])")
names("torch.linalg.cholesky(m); torch.linalg.eigh(m)[0]; torch.linalg.svd(m)[1]; torch.linalg.qr(m)[0]")
names("torch.linalg.norm(x); torch.linalg.matrix_exp(m); torch.linalg.vector_norm(x); torch.inverse(m)")

# --- copies and conversions
names("x.clone(); x.float(); x.to(torch.complex128); x.detach().requires_grad_().clone()")

# --- functions of nn
names("F.relu(x); F.softmax(x, 0); F.log_softmax(x, 0); F.softplus(x); F.leaky_relu(x); F.elu(x); F.gelu(x); F.silu(x)")
names("F.sigmoid(x); F.tanh(x); F.logsigmoid(x); F.hardtanh(x); F.linear(m, m); F.linear(m, m, m[0])")
names("F.mse_loss(x, y); F.l1_loss(x, y); F.smooth_l1_loss(x, y); F.huber_loss(x, y)")
names("F.binary_cross_entropy(x, y.detach()); F.binary_cross_entropy_with_logits(x, y.detach())")
names("F.cross_entropy(m, torch.tensor([0, 1])); F.nll_loss(m, torch.tensor([0, 1]))")

# --- in-place forms have the names of the others
names("x.clone().add_(1); x.clone().mul_(y); x.clone().exp_(); x.clone().zero_()")
names("x.clone().sub_(1); x.clone().div_(2); x.clone().pow_(2); x.clone().neg_(); x.clone().sqrt_()")
names("x.clone().masked_fill_(x > 0.3, 0.0); x.clone().index_put_((i[:1],), torch.tensor(1.0)); x.clone().relu_()")

# --- functions for operators
names("torch.add(x, 1); torch.sub(x, y); torch.mul(x, 2); torch.div(x, y); torch.true_divide(x, 2); torch.neg(x)")
names("torch.div(x, y, rounding_mode='floor'); torch.sum(x); torch.mean(x); torch.exp(x); torch.sqrt(x)")
