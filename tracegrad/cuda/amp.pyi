from tracegrad.torch.cuda.amp import *
