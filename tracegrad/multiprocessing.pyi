from tracegrad.torch.multiprocessing import *
