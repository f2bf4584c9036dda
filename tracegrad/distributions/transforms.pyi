from tracegrad.torch.distributions.transforms import *
