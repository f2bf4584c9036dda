from tracegrad.torch.autograd.graph import *
