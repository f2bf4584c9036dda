"""A vision transformer: patches by a strided convolution, a class token, PyTorch's encoder layer."""

import torch
import torch.nn as nn


class ViT(nn.Module):
    def __init__(self, dim=8, classes=3):
        super().__init__()
        self.patch = nn.Conv2d(1, dim, kernel_size=4, stride=4)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embedding = nn.Parameter(torch.zeros(1, 5, dim))
        layer = nn.TransformerEncoderLayer(
            d_model=dim, nhead=2, dim_feedforward=12, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, num_layers=1, norm=nn.LayerNorm(dim), enable_nested_tensor=False)
        self.head = nn.Linear(dim, classes)

    def forward(self, img):
        x = self.patch(img).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1) + self.pos_embedding
        return self.head(self.encoder(x)[:, 0])


def train(run):
    model = run.fill(ViT())
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=5)

    @run.compile
    def step(img, target):
        output = model(img)
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, (output.argmax(1) == target).float().mean()

    img, target = run.wave(3, 1, 8, 8), run.labels(3, classes=3)
    for _ in range(5):
        loss, acc = step(img, target)
        scheduler.step()
        run.log(loss=loss, acc=acc, lr=scheduler.get_last_lr()[0])
    run.state(model)
