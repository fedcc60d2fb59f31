"""Prepares data with six planted wastes; each line that has one says which."""

import numpy as np
import torch

random = np.random.default_rng(0)


def read_signal(parts):
    signal = np.zeros(0)
    for _ in range(parts):
        signal = np.append(signal, random.random(256))  # planted: growing-array
    return signal


def windows(signal):
    return torch.from_numpy(signal[: 512 * 64].reshape(512, 64))  # planted: float64


def features(frames, basis):
    rows = torch.zeros(0, 64)
    table = torch.ones(64, 64).to(torch.bfloat16)
    for i in range(0, len(frames), 16):
        part = frames[i : i + 16] @ basis.t() @ basis
        part = part.float() @ table.to(torch.float32)  # planted: cast
        rows = torch.cat((rows, part))  # planted: growing-array
    return rows


def one_hot(labels, classes):
    rows = torch.zeros(len(labels), classes)
    for i, label in enumerate(labels):
        rows[i, label] = 1.0  # planted: element-by-element
    return rows


def lengths(frames):
    return torch.tensor([float(i % 7) for i in range(len(frames) * 16)])  # planted: element-by-element


frames = windows(read_signal(3000))
basis = torch.from_numpy(random.random((64, 64)))
print(features(frames, basis).shape, one_hot([i % 5 for i in range(200)], 5).shape, lengths(frames).shape)
