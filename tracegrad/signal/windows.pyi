from tracegrad.torch.signal.windows import *
