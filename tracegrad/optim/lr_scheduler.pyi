from tracegrad.torch.optim.lr_scheduler import *
