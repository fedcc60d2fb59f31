"""Answers requests by a small network without a waste."""

import torch
from torch import nn

WIDTH, LENGTH = 64, 24
adapters = [torch.rand(WIDTH, WIDTH).half().float() for _ in range(2)]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.key = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mask", torch.full((LENGTH, LENGTH), -1e9).triu(1))

    def forward(self, x, length):
        late = torch.arange(LENGTH) >= length
        mask = self.mask.masked_fill(late, -1e9)
        weights = (x @ self.key(x).t() + mask).softmax(-1)
        return self.out(weights @ x)


@torch.inference_mode()
def answer(model, x):
    for weight in adapters:
        x = x @ weight
    return model(x / x.norm(), 8)


def serve(model, requests):
    return torch.cat([answer(model, x)[-1:] for x in requests])


torch.manual_seed(0)
print(serve(Net().eval(), [torch.rand(LENGTH, WIDTH) for _ in range(20)]).shape)
