from tracegrad.torch.utils.data import *
