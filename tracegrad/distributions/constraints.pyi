from tracegrad.torch.distributions.constraints import *
