from tracegrad.torch.fft import *
