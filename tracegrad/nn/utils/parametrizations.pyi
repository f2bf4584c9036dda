from tracegrad.torch.nn.utils.parametrizations import *
