"""Sixty honest functions of packages, which the rules of checked calls had not seen when they were made.

`MODELS` maps the name of each to a function that makes it, and its inputs. Weights are random.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable

Array = NDArray[Any]
EXAMPLES = Path(__file__).parents[2] / "examples"
MODELS: dict[str, tuple[Callable[[], Callable[..., Any]], str]] = {}
"""Name of each function to what makes it, and its inputs."""


def _find(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def _estimator(path: str, method: str, settings: dict[str, Any]) -> Callable[..., Any]:
    """Return a method of a fitted estimator."""
    random = np.random.default_rng(1)
    x = random.standard_normal((200, 16))
    estimator = _find(path)(**settings).fit(x, (x[:, 0] > 0).astype(int))
    call: Callable[[Array], Any] = getattr(estimator, method)
    return lambda x: call(x)  # noqa: PLW0108 - a bound method has other names


for _path, _method, _settings in (
    ("sklearn.linear_model:LogisticRegression", "predict_proba", {}),
    ("sklearn.linear_model:Ridge", "predict", {}),
    ("sklearn.linear_model:SGDClassifier", "predict", {}),
    ("sklearn.ensemble:RandomForestClassifier", "predict_proba", {"n_estimators": 20}),
    ("sklearn.ensemble:GradientBoostingClassifier", "predict_proba", {"n_estimators": 20}),
    ("sklearn.ensemble:HistGradientBoostingClassifier", "predict", {"max_iter": 20}),
    ("sklearn.ensemble:ExtraTreesRegressor", "predict", {"n_estimators": 20}),
    ("sklearn.ensemble:IsolationForest", "predict", {"n_estimators": 20}),
    ("sklearn.svm:SVC", "predict", {}),
    ("sklearn.svm:LinearSVC", "decision_function", {}),
    ("sklearn.neighbors:KNeighborsClassifier", "predict", {}),
    ("sklearn.neighbors:KernelDensity", "score_samples", {}),
    ("sklearn.naive_bayes:GaussianNB", "predict_proba", {}),
    ("sklearn.neural_network:MLPClassifier", "predict_proba", {"max_iter": 5}),
    ("sklearn.gaussian_process:GaussianProcessRegressor", "predict", {}),
    ("sklearn.decomposition:PCA", "transform", {"n_components": 4}),
    ("sklearn.decomposition:FastICA", "transform", {"n_components": 4}),
    ("sklearn.cluster:KMeans", "predict", {"n_clusters": 4}),
    ("sklearn.preprocessing:PolynomialFeatures", "transform", {}),
    ("sklearn.preprocessing:QuantileTransformer", "transform", {"n_quantiles": 50}),
    ("sklearn.preprocessing:KBinsDiscretizer", "transform", {"quantile_method": "averaged_inverted_cdf"}),
    ("xgboost:XGBClassifier", "predict_proba", {"n_estimators": 20, "n_jobs": 1}),
    ("lightgbm:LGBMClassifier", "predict", {"n_estimators": 20, "n_jobs": 1, "verbose": -1}),
):
    MODELS[_path.partition(":")[2]] = (partial(_estimator, _path, _method, _settings), "x=4x16:float64")


def _array_function(path: str, arguments: tuple[Any, ...], settings: dict[str, Any]) -> Callable[..., Any]:
    function = _find(path)
    return lambda x: function(x, *arguments, **settings)


for _path, _arguments, _settings, _shape in (
    ("numpy:multiply", (2.0,), {}, "1x250000"),
    ("numpy:copy", (), {}, "1x2000000"),
    ("numpy:sum", (), {}, "1x1000000"),
    ("numpy:argsort", (), {}, "4x5000"),
    ("numpy:cumsum", (), {}, "1x300000"),
    ("numpy:unique", (), {}, "1x20000"),
    ("numpy.linalg:svd", (), {}, "32x32"),
    ("numpy.linalg:qr", (), {}, "64x64"),
    ("numpy.fft:rfft", (), {}, "4x4096"),
    ("scipy.fft:dctn", (), {}, "64x64"),
    ("scipy.ndimage:gaussian_filter", (2.0,), {}, "128x128"),
    ("scipy.ndimage:median_filter", (3,), {}, "64x64"),
    ("scipy.ndimage:zoom", (2.0,), {}, "64x64"),
    ("scipy.signal:hilbert", (), {}, "2x4096"),
    ("scipy.signal:welch", (), {}, "2x4096"),
    ("scipy.spatial.distance:pdist", (), {}, "64x16"),
    ("scipy.special:softmax", (), {"axis": -1}, "8x1000"),
    ("scipy.stats:rankdata", (), {}, "1x2000"),
    ("scipy.linalg:expm", (), {}, "16x16"),
):
    MODELS[_path.partition(":")[2]] = (partial(_array_function, _path, _arguments, _settings), f"x={_shape}")


def _network(make: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a call of a network of torch, whose weights are random."""
    import torch

    torch.manual_seed(0)
    network = make(torch.nn).eval()

    def call(x: Array) -> Any:
        with torch.inference_mode():
            return network(torch.from_numpy(x))

    return call


for _name, _make, _spec in (
    ("gru", lambda nn: nn.GRU(32, 32, 2, batch_first=True), "x=2x16x32"),
    ("embedding_bag", lambda nn: nn.EmbeddingBag(50_000, 64), "x=4x32:int64:0..49999"),
    ("encoder", lambda nn: nn.TransformerEncoderLayer(64, 4, norm_first=True), "x=8x2x64"),
    ("depthwise", lambda nn: nn.Conv2d(32, 32, 3, groups=32), "x=1x32x32x32"),
    ("transposed", lambda nn: nn.ConvTranspose2d(16, 8, 4, 2), "x=1x16x16x16"),
    ("group_norm", lambda nn: nn.GroupNorm(4, 32), "x=2x32x64x64"),
    ("upsample", lambda nn: nn.Upsample(scale_factor=4, mode="bilinear"), "x=1x3x64x64"),
    ("pool", lambda nn: nn.AdaptiveAvgPool2d(1), "x=4x64x56x56"),
):
    MODELS[_name] = (partial(_network, _make), _spec)


def _transformer(config: str, model: str, settings: dict[str, Any]) -> Callable[..., Any]:
    import torch

    torch.manual_seed(0)
    transformers = import_module("transformers")
    network = getattr(transformers, model)(getattr(transformers, config)(**settings)).eval()

    def call(ids: Array) -> Any:
        with torch.inference_mode():
            return network(torch.from_numpy(ids))

    return call


_SMALL = {"vocab_size": 1000, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
for _kind in ("Bert", "Llama", "GPTNeoX", "Roberta"):
    MODELS[_kind.lower()] = (
        partial(_transformer, f"{_kind}Config", f"{_kind}Model", {**_SMALL, "intermediate_size": 128}),
        "ids=1x16:int64:5..999",
    )


def _jax(make: Callable[[Any], Callable[..., Any]]) -> Callable[..., Any]:
    jax = import_module("jax")
    function = jax.jit(make(jax.numpy))
    return lambda x: function(x).block_until_ready()


for _name, _make, _spec in (
    ("jax_matmul", lambda jnp: lambda x: jnp.tanh(x @ x.T), "x=64x64"),
    ("jax_sum", lambda jnp: lambda x: jnp.sum(x), "x=1x1000000"),  # noqa: PLW0108 - it is compiled
    ("jax_sort", lambda jnp: lambda x: jnp.sort(x), "x=4x2000"),  # noqa: PLW0108 - likewise
):
    MODELS[_name] = (partial(_jax, _make), _spec)


def _tokenizer() -> Callable[..., Any]:
    """Return a tokenizer, which keeps the words that it has split."""
    tokenizers = import_module("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="?"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words = [f"word{number} and another one" for number in range(300)]
    tokenizer.train_from_iterator(words, tokenizers.trainers.BpeTrainer(vocab_size=500, special_tokens=["?"]))
    return lambda text: [tokenizer.encode(str(each)).ids for each in text]


def _vectorizer() -> Callable[..., Any]:
    words = import_module("sklearn.feature_extraction.text").HashingVectorizer(n_features=256)
    return lambda text: words.transform([str(each) for each in text]).toarray()


MODELS["tokenizer"] = (_tokenizer, "text=4:string:40..40")
MODELS["hashing_vectorizer"] = (_vectorizer, "text=4:string:40..40")


def _onnx() -> Callable[..., Any]:
    """Return a call of the digit classifier by a session of its own."""
    runtime = import_module("onnxruntime")
    session = runtime.InferenceSession(EXAMPLES / "digits" / "digits.onnx")
    (name,) = (each.name for each in session.get_inputs())
    return lambda x: session.run(None, {name: x})


MODELS["digits"] = (_onnx, "x=1x1x8x8")
