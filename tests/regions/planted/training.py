"""Trains a small network with seven planted wastes; each line that has one says which."""

import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, count):
        self.pixels = np.random.default_rng(0).random((count, 3, 16, 16))

    def __len__(self):
        return len(self.pixels)

    def __getitem__(self, index):
        time.sleep(0.06)
        return torch.tensor(self.pixels[index]), index % 10  # planted: float64


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1).double()
        self.scale = nn.Parameter(torch.ones(16, 16, dtype=torch.float64))
        self.last = nn.Linear(16, 10).double()

    def forward(self, x):
        x = torch.relu(self.first(x)).clone()  # planted: copy
        x = x.to(torch.float16).to(torch.float64)  # planted: cast
        x = x.mean((2, 3)) @ self.scale
        return self.last(x)


def train(model, loader, epochs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses, right = [], 0
    for _ in range(epochs):
        for x, y in loader:  # planted: loader-bound
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())  # planted: synchronisation
            guess = model(x).argmax(1)  # planted: unused-gradient
            right += int((guess == y).sum())  # planted: synchronisation
    return losses, right


torch.manual_seed(0)
losses, right = train(Net(), DataLoader(Images(64), 8), 2)
print(len(losses), right)
