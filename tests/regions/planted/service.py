"""Answers requests by a small network with seven planted wastes; each line that has one says which."""

import torch
from torch import nn

WIDTH, LENGTH = 64, 24
adapters = [torch.rand(WIDTH, WIDTH).half() for _ in range(2)]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.key = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, mask):
        keys = self.key(x).t().contiguous().t().contiguous()  # planted: layout
        weights = (x @ keys.t() + mask).softmax(-1)
        weights = torch.as_tensor(weights.to("cpu"))  # planted: transfer
        return self.out(weights @ x)


def causal_mask():
    rows = [[0.0 if j <= i else -1e9 for j in range(LENGTH)] for i in range(LENGTH)]
    return torch.tensor(rows)  # planted: element-by-element


def padding_mask(length):
    mask = torch.zeros(LENGTH)
    for i in range(length, LENGTH):
        mask[i] = -1e9  # planted: element-by-element
    return mask


def answer(model, x):
    mask = causal_mask() + padding_mask(8)
    for weight in adapters:
        x = x @ weight.float()  # planted: cast
    return model(x / x.norm(), mask)  # planted: unused-gradient


def serve(model, requests):
    answers = torch.zeros(0, WIDTH)
    for x in requests:
        answers = torch.cat([answers, answer(model, x)[-1:]])  # planted: growing-array
    return answers


torch.manual_seed(0)
print(serve(Net().eval(), [torch.rand(LENGTH, WIDTH) for _ in range(20)]).shape)
