from tracegrad.torch.nn.modules import *
