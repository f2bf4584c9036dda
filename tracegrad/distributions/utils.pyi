from tracegrad.torch.distributions.utils import *
