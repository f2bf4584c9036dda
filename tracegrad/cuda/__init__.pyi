from tracegrad.torch.cuda import *
