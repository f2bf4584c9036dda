from tracegrad.torch.autograd.functional import *
