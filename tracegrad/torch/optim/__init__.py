"""Namespace of `torch.optim`, and in lower case the same rules as pure functions of pytrees."""

from tracegrad.torch.optim import lr_scheduler, schedules, swa_utils
from tracegrad.torch.optim.functional import adagrad, adam, adamw, clip_by_global_norm, rmsprop, sgd
from tracegrad.torch.optim.lbfgs import LBFGS
from tracegrad.torch.optim.matrix_optimizers import Adafactor, Muon
from tracegrad.torch.optim.optimizer import Optimizer
from tracegrad.torch.optim.optimizers import (
    ASGD,
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    NAdam,
    RAdam,
    RMSprop,
    Rprop,
)

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "adagrad",
    "adam",
    "adamw",
    "clip_by_global_norm",
    "lr_scheduler",
    "rmsprop",
    "schedules",
    "sgd",
    "swa_utils",
]


def __getattr__(name: str) -> object:
    if name == "SparseAdam":
        text = "has no 'SparseAdam': gradients are dense here, and PyTorch's SparseAdam refuses them; use Adam"
        raise AttributeError(f"{__name__} {text}", name=name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
