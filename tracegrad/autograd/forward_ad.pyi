from tracegrad.torch.autograd.forward_ad import *
