"""A training loop over a `DataLoader`: a dataset class, `random_split`, a collate function, a `TensorDataset`."""

import torch
import torch.nn as nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset, random_split


class Pairs(Dataset):
    def __init__(self, x, y, transform=None):
        self.x, self.y, self.transform = x, y, transform

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        x = self.x[index] if self.transform is None else self.transform(self.x[index])
        return {"x": x, "y": self.y[index], "index": index}


def train(run):
    dataset = Pairs(run.wave(10, 3), run.labels(10, classes=2), transform=lambda x: x * 2 - 0.5)
    first, second = random_split(dataset, [7, 3], generator=torch.Generator().manual_seed(3))
    run.log(sizes=[len(first), len(second)], indices=sorted([*first.indices, *second.indices]))
    train_loader = DataLoader(Subset(dataset, range(7)), batch_size=3, shuffle=False, drop_last=False)
    extra = TensorDataset(run.wave(3, 3), run.labels(3, classes=2))
    stack = lambda rows: (torch.stack([r[0] for r in rows]), torch.stack([r[1] for r in rows]))  # noqa: E731
    test_loader = DataLoader(ConcatDataset([extra, extra]), batch_size=4, collate_fn=stack)
    model = run.fill(nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @run.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(2):
        model.train()
        for batch in train_loader:
            run.log(loss=step(batch["x"], batch["y"]), index=batch["index"])
        model.eval()
        correct = 0
        with torch.no_grad():
            for data, target in test_loader:
                pred = model(data).argmax(dim=1, keepdim=True)
                correct += pred.eq(target.view_as(pred)).sum().item()
        run.log(correct=correct, total=len(test_loader.dataset))
    run.state(model)
