"""A graph convolutional network with a normalized adjacency matrix and masked nodes."""

import math

import torch
import torch.nn.functional as F
from torch.nn.modules.module import Module
from torch.nn.parameter import Parameter


class GraphConvolution(Module):
    def __init__(self, in_features, out_features, bias=True):
        super().__init__()
        self.weight = Parameter(torch.FloatTensor(in_features, out_features).to(torch.get_default_dtype()))
        if bias:
            self.bias = Parameter(torch.zeros(out_features))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        stdv = 1.0 / math.sqrt(self.weight.size(1))
        self.weight.data.uniform_(-stdv, stdv)
        if self.bias is not None:
            self.bias.data.uniform_(-stdv, stdv)

    def forward(self, input, adj):
        output = torch.mm(adj, torch.mm(input, self.weight))
        return output if self.bias is None else output + self.bias


class GCN(Module):
    def __init__(self, nfeat, nhid, nclass):
        super().__init__()
        self.gc1, self.gc2 = GraphConvolution(nfeat, nhid), GraphConvolution(nhid, nclass, bias=False)

    def forward(self, x, adj):
        return F.log_softmax(self.gc2(F.relu(self.gc1(x, adj)), adj), dim=1)


def normalized(edges, nodes):
    adj = torch.zeros(nodes, nodes)
    adj[edges[0], edges[1]] = 1.0
    adj = torch.maximum(adj, adj.t()) + torch.eye(nodes)
    d = adj.sum(1).pow(-0.5)
    d[torch.isinf(d)] = 0.0
    return torch.diag(d) @ adj @ torch.diag(d)


def train(run):
    model = run.fill(GCN(4, 6, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    edges = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 0], [1, 2, 3, 4, 5, 6, 0, 3]])
    adj, features, labels = normalized(edges, 7), run.wave(7, 4), run.labels(7, classes=3)
    idx_train = torch.LongTensor(range(4))

    @run.compile
    def step():
        model.train()
        optimizer.zero_grad()
        output = model(features, adj)
        loss_train = F.nll_loss(output[idx_train], labels[idx_train])
        acc = output[idx_train].max(1)[1].type_as(labels).eq(labels[idx_train]).sum()
        loss_train.backward()
        optimizer.step()
        return loss_train, acc

    for _ in range(5):
        loss, acc = step()
        run.log(loss=loss.item(), acc=acc.item())
    run.state(model)
