from tracegrad.torch.nn.utils.prune import *
