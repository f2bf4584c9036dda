from tracegrad.torch.optim.swa_utils import *
