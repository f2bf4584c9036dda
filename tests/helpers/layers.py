"""The layers of the package, from the bottom up."""

from __future__ import annotations

# From the bottom up: a module imports from its own layer and from those before it.
LAYERS = (
    "platform", "cpython", "locks", "errors", "optimizations", "settings", "tensor_dtype", "typing", "utils",
    "target", "avals", "tree", "torch", "torch.modes", "ops", "ad", "numpy_api", "scipy_api", "random",
    "torch.functions", "torch.tape", "torch.autograd", "torch.linalg", "torch.nn", "torch.distributions",
    "torch.optim", "torch.special", "torch.fft", "torch.masked", "torch.signal", "torch.array_api", "torch.accelerator",
    "torch.process_settings", "torch.testing", "torch.amp", "torch.cuda", "torch.multiprocessing",
    "torch.serialization", "torch.utils", "torch.exports", "ir", "analysis", "trace", "transforms", "control",
    "reroll", "jacobians", "passes", "llvmir", "codegen", "runtime", "solvers", "explain", "profile", "numba_export",
    "traced_function", "transform_support", "api", "compiler", "audit", "scipy", "dask", "implicit", "func", "compat",
    "visualization", "cli", "__main__", "tracegrad",
)  # fmt: skip


# The same for the packages inside of a folder, with what is imported for the type checker or inside functions.
LAYERS_WITHIN = {
    "codegen": "loopir vecmath instr kernels libs lower plan program entry",
    "ops": "core numerics shape elementwise indexing reduce linalg nn signal calls special ragged",
    "passes": "core algebra dtypes linalg regions simplify loops",
    "reroll": "online",
    "runtime": "compile threads memory blas execution diagnostics persistence dispatch",
    "trace": "bytecode sources builder values rewriting effects ragged loops random proxies world driver",
}
