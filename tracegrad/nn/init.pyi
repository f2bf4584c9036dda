from tracegrad.torch.nn.init import *
