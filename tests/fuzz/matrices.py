"""The lines of random programs that are linear algebra, of small matrices far from singular ones."""

from __future__ import annotations

from fuzz.grammar import lines

__all__ = ["MATRICES"]

# Symmetric with eigenvalues apart, and any with singular values apart.
_SYMMETRIC = "({Q} + {Q}.T) * 0.1 + np.diag(np.arange(1.0, len({Q}) + 1.0))"
_DEFINITE = "{Q} @ {Q}.T + 2.0 * np.eye(len({Q}))"
_GENERAL = "{Q} * 0.1 + np.diag(np.arange(1.0, len({Q}) + 1.0))"

MATRICES = [
    line.replace("SYMMETRIC", _SYMMETRIC).replace("DEFINITE", _DEFINITE).replace("GENERAL", _GENERAL)
    for line in lines("""
np.linalg.eigvalsh(SYMMETRIC)
np.linalg.eigh(SYMMETRIC)[0]
np.linalg.eigh(SYMMETRIC).eigenvectors ** 2
np.linalg.svd(GENERAL, compute_uv=False)
np.linalg.svdvals(GENERAL)
np.linalg.svd(GENERAL)[1] * {c}
np.abs(np.linalg.svd(GENERAL)[0])
np.linalg.eigvals(GENERAL).real.sum()
np.sort(np.linalg.eigvals(SYMMETRIC).real)
np.linalg.pinv(GENERAL)
np.linalg.pinv({M}[:2] + np.eye(2, {M}.shape[1]) * 4.0)
np.linalg.lstsq(GENERAL, {Q}, rcond=None)[0]
np.linalg.lstsq(GENERAL, {Q}[0])[0]
np.abs(np.linalg.qr(GENERAL)[1])
np.linalg.qr(GENERAL, mode='r') ** 2
np.linalg.solve(GENERAL, {Q}[0])
np.linalg.solve(GENERAL, {Q})
np.linalg.solve(GENERAL, np.ones(len({Q})))
np.linalg.inv(GENERAL) @ {Q}
np.linalg.det(GENERAL) * 1e-3
np.linalg.slogdet(GENERAL)[1]
np.linalg.cholesky(DEFINITE)
np.linalg.cholesky(DEFINITE, upper=True)
np.linalg.solve(np.linalg.cholesky(DEFINITE), {Q})
np.linalg.norm({M} + 0.1, 1)
np.linalg.norm({M} + 0.1, np.inf)
np.linalg.norm(GENERAL, 2)
np.linalg.norm(GENERAL, 'nuc')
np.linalg.norm({M} + 0.1, 'fro')
np.linalg.norm({V} + 0.01, 3)
np.linalg.norm({V}, 1)
np.linalg.norm({V}, np.inf)
np.linalg.norm({M} + 0.01, axis={axis}, ord=2, keepdims=True)
np.linalg.cond(GENERAL)
np.linalg.matrix_rank(GENERAL) * {c}
np.linalg.matrix_power(GENERAL * 0.2, -2)
np.linalg.matrix_power({Q} * 0.3, {k})
np.linalg.inv(np.stack([GENERAL, DEFINITE]))
np.linalg.solve(np.stack([GENERAL, DEFINITE]), np.stack([{Q}, {Q}.T]))
np.linalg.det(np.stack([GENERAL, DEFINITE]) * 0.3)
np.linalg.cholesky(np.stack([DEFINITE, 2.0 * (DEFINITE)]))
np.linalg.eigvalsh(np.stack([SYMMETRIC, 2.0 * (SYMMETRIC)]))
np.linalg.tensorsolve(GENERAL, {Q}[0])
np.linalg.tensorinv(GENERAL, ind=1)
np.linalg.multi_dot([{M}, {M}.T, {M}, {V}])
np.linalg.outer({V}, {V2})
np.linalg.vector_norm({F} + 0.01)
np.linalg.matrix_norm({M} + 0.1)
np.linalg.trace({M})
np.linalg.vecdot({V}, {V2})
np.linalg.diagonal({M})
np.linalg.matrix_transpose({M}) * {c}
np.linalg.matmul({M}, {M}.T)
np.trace(np.linalg.inv(DEFINITE))
{Q} @ np.linalg.solve(DEFINITE, {Q}.T)
np.sum(np.log(np.diag(np.linalg.cholesky(DEFINITE))))
""")
]
