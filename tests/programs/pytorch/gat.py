"""Graph attention over a list of edges: a softmax per target node by `index_add` and `scatter_reduce`."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class GATLayer(nn.Module):
    def __init__(self, fin, fout, heads):
        super().__init__()
        self.heads, self.fout = heads, fout
        self.lin = nn.Linear(fin, heads * fout, bias=False)
        self.att_src = nn.Parameter(torch.empty(1, heads, fout))
        self.att_dst = nn.Parameter(torch.empty(1, heads, fout))
        nn.init.xavier_uniform_(self.att_src)
        nn.init.xavier_uniform_(self.att_dst)

    def forward(self, x, edge_index):
        n = x.size(0)
        src, dst = edge_index
        h = self.lin(x).view(n, self.heads, self.fout)
        a_src, a_dst = (h * self.att_src).sum(-1), (h * self.att_dst).sum(-1)
        e = F.leaky_relu(a_src[src] + a_dst[dst], 0.2)
        index = dst.unsqueeze(-1).expand_as(e)
        top = torch.full((n, self.heads), float("-inf")).scatter_reduce(0, index, e.detach(), reduce="amax")
        e = (e - top[dst]).exp()
        total = torch.zeros(n, self.heads).index_add_(0, dst, e)
        alpha = e / (total[dst] + 1e-16)
        out = torch.zeros_like(h).index_add(0, dst, alpha.unsqueeze(-1) * h[src])
        return out.flatten(1)


def train(run):
    layers = nn.ModuleList([GATLayer(4, 3, 2), GATLayer(6, 3, 1)])
    run.fill(layers)
    optimizer = torch.optim.Adam(layers.parameters(), lr=0.02, eps=1e-3)
    edges = torch.tensor([[0, 1, 2, 3, 4, 0, 2, 1, 3], [1, 2, 3, 4, 0, 2, 4, 1, 3]])
    x, y = run.wave(5, 4), run.labels(5, classes=3)

    @run.compile
    def step(edge_index):
        optimizer.zero_grad()
        out = layers[1](F.elu(layers[0](x, edge_index)), edge_index)
        loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(5):
        run.log(loss=step(edges))
    run.state(layers)
