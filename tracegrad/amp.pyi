from tracegrad.torch.amp import *
