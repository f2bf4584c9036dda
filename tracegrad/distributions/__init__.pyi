from tracegrad.torch.distributions import *
