from tracegrad.torch.optim import *
