from tracegrad.torch.distributions.kl import *
