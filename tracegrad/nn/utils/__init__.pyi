from tracegrad.torch.nn.utils import *
