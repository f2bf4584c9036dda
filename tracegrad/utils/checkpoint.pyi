from tracegrad.torch.utils.checkpoint import *
