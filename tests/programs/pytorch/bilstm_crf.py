"""A bidirectional LSTM with a conditional random field: the partition function by loops, and Viterbi's path."""

import torch
import torch.nn as nn

START, STOP, TAGS = 3, 4, 5


def log_sum_exp(vec):
    top = vec.max(dim=-1, keepdim=True).values
    return (top + torch.log(torch.sum(torch.exp(vec - top), dim=-1, keepdim=True))).squeeze(-1)


class BiLSTM_CRF(nn.Module):
    def __init__(self, vocabulary=8):
        super().__init__()
        self.word_embeds = nn.Embedding(vocabulary, 4)
        self.lstm = nn.LSTM(4, 3, num_layers=1, bidirectional=True)
        self.hidden2tag = nn.Linear(6, TAGS)
        self.transitions = nn.Parameter(torch.randn(TAGS, TAGS))

    def forbid(self):
        self.transitions.data[START, :] = -10000
        self.transitions.data[:, STOP] = -10000

    def features(self, sentence):
        embeds = self.word_embeds(sentence).view(len(sentence), 1, -1)
        hidden = (torch.zeros(2, 1, 3), torch.zeros(2, 1, 3))
        out, _ = self.lstm(embeds, hidden)
        return self.hidden2tag(out.view(len(sentence), 6))

    def forward_score(self, feats):
        alphas = torch.full((TAGS,), -10000.0)
        alphas[START] = 0.0
        for feat in feats:
            alphas = log_sum_exp(alphas.unsqueeze(0) + self.transitions + feat.unsqueeze(1))
        return log_sum_exp(alphas + self.transitions[STOP])

    def sentence_score(self, feats, tags):
        score = torch.zeros(1)
        tags = torch.cat([torch.tensor([START], dtype=torch.long), tags])
        for i, feat in enumerate(feats):
            score = score + self.transitions[tags[i + 1], tags[i]] + feat[tags[i + 1]]
        return score + self.transitions[STOP, tags[-1]]

    def neg_log_likelihood(self, sentence, tags):
        feats = self.features(sentence)
        return self.forward_score(feats) - self.sentence_score(feats, tags)

    @torch.no_grad()
    def viterbi(self, sentence):
        scores, back = torch.full((TAGS,), -10000.0), []
        scores[START] = 0
        for feat in self.features(sentence):
            best, pointers = (scores + self.transitions).max(dim=1)
            scores = best + feat
            back.append(pointers)
        path = [int((scores + self.transitions[STOP]).argmax())]
        for pointers in reversed(back):
            path.append(pointers[path[-1]].item())
        return path[::-1]


def train(run):
    model = run.fill(BiLSTM_CRF())
    model.forbid()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, weight_decay=1e-4)

    @run.compile
    def step(sentence, tags):
        model.zero_grad()
        loss = model.neg_log_likelihood(sentence, tags)
        loss.backward()
        optimizer.step()
        return loss

    sentence, tags = run.labels(4, classes=8), run.labels(4, classes=3)
    for _ in range(5):
        run.log(loss=step(sentence, tags))
    run.log(path=torch.tensor(model.viterbi(sentence)))
    run.state(model)
