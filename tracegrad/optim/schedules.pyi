from tracegrad.torch.optim.schedules import *
