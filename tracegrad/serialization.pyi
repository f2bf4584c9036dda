from tracegrad.torch.serialization import *
