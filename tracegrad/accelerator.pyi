from tracegrad.torch.accelerator import *
