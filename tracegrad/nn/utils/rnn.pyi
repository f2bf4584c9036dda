from tracegrad.torch.nn.utils.rnn import *
