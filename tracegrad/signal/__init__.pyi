from tracegrad.torch.signal import *
