from tracegrad.torch.nn.utils.parametrize import *
