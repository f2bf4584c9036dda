from tracegrad.torch.autograd import *
