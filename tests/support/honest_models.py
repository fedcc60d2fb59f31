"""Two hundred honest functions, with the caches, tables, states and threads that such functions have.

`MODELS` maps the name of each to its inputs: ``modeldyno profile call:tests/support/honest_models.py:mlp_0``.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Array = NDArray[Any]
MODELS: dict[str, tuple[str, ...]] = {}
"""Name of each function to its inputs."""
_RANDOM = np.random.default_rng(0)


def _weights(*shape: int) -> Array:
    return _RANDOM.standard_normal(shape).astype(np.float32) / 8


def _add(name: str, inputs: Sequence[str], function: Callable[..., Any]) -> None:
    number = sum(each.startswith(f"{name}_") for each in MODELS)
    full = f"{name}_{number}"
    function.__name__ = full
    globals()[full] = function
    MODELS[full] = tuple(inputs)


def _mlp(width: int, depth: int) -> Callable[..., Any]:
    layers = [_weights(width, width) for _ in range(depth)]

    def mlp(x: Array) -> Array:
        for layer in layers:
            x = np.maximum(x @ layer, 0)
        return x

    return mlp


def _convolution(channels: int) -> Callable[..., Any]:
    kernel = _weights(channels, 3, 3)

    def convolution(x: Array) -> Array:
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(-2, -1))
        return np.asarray(np.maximum(np.einsum("bhwij,cij->bchw", windows, kernel), 0))

    return convolution


def _recurrent(width: int) -> Callable[..., Any]:
    inner = _weights(width, width)

    def recurrent(x: Array) -> Array:
        state = np.zeros((x.shape[0], width), np.float32)
        for step in range(x.shape[1]):
            state = np.tanh(x[:, step] + state @ inner)
        return state

    return recurrent


def _attention(width: int) -> Callable[..., Any]:
    query, key = _weights(width, width), _weights(width, width)

    @lru_cache
    def positions(length: int) -> Array:
        return np.sin(np.arange(length)[:, None] / (1 + np.arange(width))).astype(np.float32)

    def attention(x: Array) -> Array:
        x = x + positions(x.shape[1])
        scores = np.exp(np.tanh((x @ query) @ (x @ key).transpose(0, 2, 1)))
        return np.asarray((scores / scores.sum(-1, keepdims=True)) @ x)

    return attention


def _trees(count: int, depth: int) -> Callable[..., Any]:
    splits = _RANDOM.standard_normal((count, 2**depth)).astype(np.float32)
    features = _RANDOM.integers(0, 16, (count, 2**depth))

    def trees(x: Array) -> Array:
        total = np.zeros(len(x))
        for tree in range(count):
            for row, values in enumerate(x):
                node = 1
                while node < 2 ** (depth - 1):
                    node = 2 * node + (values[features[tree, node]] > splits[tree, node])
                total[row] += splits[tree, node]
        return total

    return trees


def _embedding(rows: int, *, touched: bool) -> Callable[..., Any]:
    table = np.zeros((rows, 64), np.float32)  # its pages are made when they are first touched
    if touched:
        table += np.arange(rows, dtype=np.float32)[:, None]

    def embedding(ids: Array) -> Array:
        return np.asarray(table[ids].sum(axis=-2))

    return embedding


def _until(limit: int) -> Callable[..., Any]:
    def until(ids: Array) -> int:
        total = 0
        for token in ids.ravel().tolist():
            total += sum(range(50 * token))
            if token == limit:
                break
        return total

    return until


def _cached_state(width: int, keep: int) -> Callable[..., Any]:
    cache: OrderedDict[int, Array] = OrderedDict()
    inner = _weights(width, width)

    def cached_state(x: Array) -> Array:
        cache[len(cache) + 1 if not cache else next(reversed(cache)) + 1] = x @ inner
        while len(cache) > keep:
            cache.popitem(last=False)
        return np.asarray(x @ next(iter(cache.values())).T)

    return cached_state


def _constant(size: int) -> Callable[..., Any]:
    answer = np.full(size, 0.5, np.float32)
    return lambda x: answer


def _view() -> Callable[..., Any]:
    return lambda x: x[::-1]


def _tiny(number: int) -> Callable[..., Any]:
    functions = [
        lambda x: x,
        lambda x: 1.0,
        lambda x: x.shape,
        lambda x: None,
        lambda x: x.T,
    ]
    return functions[number]


def _sleep(seconds: float) -> Callable[..., Any]:
    def sleeps(x: Array) -> Array:
        time.sleep(seconds)
        return x + 1

    return sleeps


def _counter() -> Callable[..., Any]:
    state = {"calls": 0}

    def counter(x: Array) -> Array:
        state["calls"] += 1
        return x * state["calls"]

    return counter


def _every(period: int) -> Callable[..., Any]:
    state = {"calls": 0}

    def flushes(x: Array) -> Array:
        state["calls"] += 1
        if state["calls"] % period == 0:
            np.sort(np.arange(200_000) % 7919)
        return x + 1

    return flushes


def _pool(workers: int) -> Callable[..., Any]:
    pool: list[ThreadPoolExecutor] = []

    def pooled(x: Array) -> Array:
        if not pool:
            pool.append(ThreadPoolExecutor(workers))
        return np.stack(list(pool[0].map(np.sort, x)))

    return pooled


def _sorting() -> Callable[..., Any]:
    return lambda x: np.sort(x, axis=None)


def _python_sort() -> Callable[..., Any]:
    return lambda x: sorted(x.ravel().tolist())


def _words() -> Callable[..., Any]:
    known: dict[str, int] = {}

    def words(text: Any) -> list[int]:
        return [known.setdefault(word, len(known)) for each in text for word in str(each).split()]

    return words


def _sparse(density: float) -> Callable[..., Any]:
    from scipy import sparse

    weights = sparse.random(512, 512, density, "csr", np.float32, random_state=0)
    return lambda x: (weights @ x.T).T


def _nested(depth: int) -> Callable[..., Any]:
    def nested(x: Array) -> dict[str, Any]:
        return {"scores": x.ravel()[:depth].tolist(), "boxes": [x[0], x[-1]], "name": "a"}

    return nested


def _large_output(size: int) -> Callable[..., Any]:
    return lambda x: np.resize(x, size)


def _cycles() -> Callable[..., Any]:
    def cycles(x: Array) -> float:
        nodes: list[list[Any]] = [[] for _ in range(50)]
        for one, other in pairwise(nodes):
            one.append(other)
            other.append(one)
        return float(x.sum())

    return cycles


def _torch(kind: str, width: int) -> Callable[..., Any]:
    network: list[Any] = []

    def networks(x: Array) -> Any:
        import torch
        from torch import nn

        if not network:
            torch.manual_seed(0)
            torch.set_num_threads(1)
            made = {
                "mlp": lambda: nn.Sequential(
                    nn.Linear(width, width), nn.ReLU(), nn.Dropout(), nn.Linear(width, 8)
                ),
                "cnn": lambda: nn.Sequential(
                    nn.Unflatten(1, (1, width)), nn.Conv1d(1, 8, 3), nn.BatchNorm1d(8), nn.ReLU()
                ),
                "lstm": lambda: nn.Sequential(nn.Unflatten(1, (1, width)), nn.LSTM(width, 32)),
                "transformer": lambda: nn.Sequential(
                    nn.Unflatten(1, (1, width)), nn.TransformerEncoderLayer(width, 4, batch_first=True)
                ),
            }[kind]()
            network.append(made.eval())
        with torch.inference_mode():
            return network[0](torch.from_numpy(x))

    return networks


for _width, _depth, _batch in product((16, 64, 256), (1, 2, 8), (1, 8)):
    _add("mlp", [f"x={_batch}x{_width}"], _mlp(_width, _depth))
for _channels, _side in product((1, 4, 8), (8, 16, 32)):
    _add("convolution", [f"x=2x{_side}x{_side}"], _convolution(_channels))
for _width, _length in product((8, 32, 64), (4, 16, 64)):
    _add("recurrent", [f"x=2x{_length}x{_width}"], _recurrent(_width))
for _width, _length in product((8, 32, 64), (4, 16, 64)):
    _add("attention", [f"x=2x{_length}x{_width}"], _attention(_width))
for _count, _depth, _batch in product((1, 10, 50), (3, 6), (1, 4)):
    _add("trees", [f"x={_batch}x16"], _trees(_count, _depth))
for _rows, _length, _touched in product((1_000, 100_000, 500_000), (1, 16, 128, 1024), (True, False)):
    _add("embedding", [f"ids=1x{_length}:int64:0..{_rows - 1}"], _embedding(_rows, touched=_touched))
for _limit, _length in product((3, 9), (4, 32, 128)):
    _add("until", [f"ids=1x{_length}:int64:0..9"], _until(_limit))
for _width, _keep in product((16, 64, 128), (2, 8, 64)):
    _add("cached_state", [f"x=4x{_width}"], _cached_state(_width, _keep))
for _size in (1, 10, 1000, 100_000):
    _add("constant", ["x=4x16"], _constant(_size))
for _size in (1, 100, 10_000, 1_000_000):
    _add("view", [f"x=2x{_size}"], _view())
for _number in range(5):
    _add("tiny", ["x=1x4"], _tiny(_number))
for _seconds in (0.0001, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02):
    _add("sleep", ["x=1x4"], _sleep(_seconds))
for _size in (4, 40, 400, 4000, 40_000):
    _add("counter", [f"x=1x{_size}"], _counter())
for _period in (2, 3, 4, 5, 7, 8):
    _add("flush", ["x=1x64"], _every(_period))
for _workers, _size in product((1, 2, 4), (100, 10_000)):
    _add("pool", [f"x=4x{_size}"], _pool(_workers))
for _size in (10, 100, 1000, 10_000, 100_000):
    _add("sorting", [f"x=1x{_size}"], _sorting())
    _add("python_sort", [f"x=1x{min(_size, 20_000)}"], _python_sort())
for _size in (1, 10, 100, 1000):
    _add("words", [f"text=4:string:{_size}..{_size}"], _words())
for _density, _batch in product((0.01, 0.1, 0.5), (1, 8)):
    _add("sparse", [f"x={_batch}x512"], _sparse(_density))
for _size in (4, 100, 5000):
    _add("nested", [f"x=2x{_size}"], _nested(_size))
for _size in (1000, 100_000, 1_000_000, 8_000_000):
    _add("large_output", ["x=2x64"], _large_output(_size))
for _size in (4, 40, 400, 4000):
    _add("cycles", [f"x=1x{_size}"], _cycles())
for _kind, _width, _batch in product(("mlp", "cnn", "lstm", "transformer"), (16, 64, 128), (1, 4, 8)):
    _add(_kind, [f"x={_batch}x{_width}"], _torch(_kind, _width))

DOZEN = (
    "mlp_8", "attention_4", "trees_5", "embedding_22", "until_2", "cached_state_4", "constant_2", "view_2",
    "tiny_0", "flush_0", "pool_2", "sorting_2",
)  # fmt: skip
"""Those that the default suite tries."""
