"""Which recorded derivatives depend on the answer itself, as text, and what PyTorch makes of them.

`python tests/samples/torch_answers.py` runs the calls with PyTorch, which the tests do not need, and writes
`data/torch_answers.json`: for each call, the derivatives of the weighted sum of its gradients with respect to its
results, to its arrays and to the cotangents, None where there is none.
"""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

from torch_cases import CONSTANT, INPUTS, weights

DATA = Path(__file__).parents[1] / "data" / "torch_answers.json"

TEXT = """
T.prod(x) T.prod(x,0) T.prod(x,1,keepdim=True) T.prod(s,0) T.cumprod(x,0) T.cumprod(cube,1) T.std(x) T.std(x,1)
T.std(x,0,keepdim=True) T.var(x) T.std_mean(x) T.std_mean(x,0) T.var_mean(x,1) T.norm(x) T.norm(x,2,dim=0)
T.norm(x,3,dim=(0,1)) T.norm(zeros,dim=1) T.norm(zeros,3,dim=1) T.norm(zeros,1.5) T.norm(x,-1.)
T.norm(x,dim=1,keepdim=True) T.dist(x,v,3) T.dist(x,y) T.dist(x,x) T.logsumexp(x,0) T.logsumexp(x,(0,1))
T.logsumexp(large,0) T.logsumexp(cube,(0,-1),keepdim=True) T.softmax(x,0) T.log_softmax(x,1) T.logcumsumexp(x,1)
T.copysign(x,y) T.copysign(x,-1.) T.erfinv(x) T.special.i0e(x) T.special.ndtri(p) T.exp(x) T.sqrt(p) T.tanh(x)
T.sigmoid(x) T.reciprocal(p) T.rsqrt(p) T.tan(x) T.expm1(x) T.exp2(x) T.pow(p,y) T.pow(p,2) T.pow(2,x) T.div(x,p)
T.hypot(x,y) T.amax(x,0) T.relu(x) F.relu6(k) F.leaky_relu(k) F.elu(k) F.selu(k) F.hardtanh(k) F.hardshrink(k)
F.softshrink(k) F.threshold(k,.1,.2) F.nll_loss(x,i) F.nll_loss(cube,j) F.pad(cube,(1,1,2,0),'reflect')
F.pad(cube,(2,1),mode='replicate') F.avg_pool2d(image,2) F.max_pool2d(image,2) F.adaptive_avg_pool2d(image,(2,4))
F.adaptive_max_pool2d(image,(3,4),return_indices=True) F.normalize(x) F.layer_norm(x,(3,),v,v) T.linalg.vector_norm(x)
T.linalg.matrix_norm(x) T.linalg.vector_norm(x,3.,dim=1,keepdim=True)
"""
CALLS = TEXT.split()


def run(module: Any, call: str) -> list[Any]:
    """The derivatives, as lists; float64 is the default dtype."""
    inputs = {k: module.tensor(INPUTS[k].tolist()) for k in INPUTS if re.search(rf"\b{k}\b", call)}
    wanted = [x.requires_grad_() for k, x in inputs.items() if x.is_floating_point() and k not in CONSTANT]
    result = eval(call, {"T": module, "F": module.nn.functional, **inputs})
    outputs = [x for x in (result if isinstance(result, tuple) else (result,)) if x.requires_grad]
    seeds = [_weights(module, x).requires_grad_() for x in outputs]
    grads = module.autograd.grad(outputs, wanted, seeds, create_graph=True, allow_unused=True)
    live = [(g * _weights(module, g)).sum() for g in grads if g is not None and g.requires_grad]
    gradients = module.autograd.grad(live, [*outputs, *wanted, *seeds], allow_unused=True)
    return [None if g is None else (g + 0).tolist() for g in gradients]


def _weights(module: Any, x: Any) -> Any:
    return module.tensor(weights(tuple(x.shape)).tolist())


if __name__ == "__main__":
    with contextlib.suppress(ModuleNotFoundError):  # the suite looks for examples here too
        import torch

    torch.set_default_dtype(torch.float64)
    rows = ",\n".join(f"{json.dumps(call)}: {json.dumps(run(torch, call))}" for call in CALLS)
    DATA.write_text(f"{{\n{rows}\n}}\n")
