from tracegrad.torch.testing import *
