"""What `hf` and `hf-config` share: class, inputs and tokenizer of a transformers model, offline."""

from __future__ import annotations

import inspect
import json
import logging
import os
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from modeldyno.core.inputs import BATCH, DEFAULT_LENGTH, SEQUENCE, Dimension, InputSpec
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from torch.nn import Module

    from modeldyno.ports import Feed

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "spiece.model")
_DULL_NAMES = {"model", "config", "checkpoint", "weights", "hf", "."}


# --- quiet and offline ---------------------------------------------------------------------------


@contextmanager
def offline() -> Iterator[None]:
    """Keep transformers from the network and from our output; all is as before on leaving."""
    before = {name: os.environ.get(name) for name in _SWITCHES}
    disabled = logging.root.manager.disable
    os.environ.update(_SWITCHES)
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with _without_progress():
                yield
    finally:
        logging.disable(disabled)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


_SWITCHES = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DISABLE_SAFETENSORS_CONVERSION": "1",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
}


@contextmanager
def _without_progress() -> Iterator[None]:
    from huggingface_hub import constants  # noqa: PLC0415 - comes with transformers
    from transformers.utils import logging as hf_logging  # noqa: PLC0415 - heavy

    # huggingface_hub reads the environment when it is imported, and it may have been before.
    was_offline, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
    level, bars = hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = was_offline
        hf_logging.set_verbosity(level)
        if bars:
            hf_logging.enable_progress_bar()


def first_line(error: BaseException) -> str:
    """Give the first line of what an exception says, without a full stop."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip(" .:")


# --- configuration and class ---------------------------------------------------------------------


def configuration(path: Path) -> Any:
    """Read a configuration.

    Raises:
        RequestError: it is damaged, of an unknown kind, or wants code of its own.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise RequestError(f"'{file}' is no JSON: {first_line(error)}; copy it again.") from error
    if not isinstance(content, dict):
        raise RequestError(f"'{file}' is no configuration of transformers; give one with a model_type.")
    with offline():
        from transformers import AutoConfig  # noqa: PLC0415 - heavy

        try:
            return AutoConfig.from_pretrained(file, local_files_only=True, trust_remote_code=False)
        except Exception as error:
            if "auto_map" in content:
                raise _own_code(file) from error
            raise RequestError(
                f"transformers cannot read '{file}': {first_line(error)}; is it a saved model's?"
            ) from error


def class_of(config: Any, where: Path) -> Any:
    """Find the class that the configuration names first, or the bare model of its type.

    Raises:
        RequestError: the class is not in transformers.
    """
    import transformers  # noqa: PLC0415 - heavy

    names = getattr(config, "architectures", None) or ()
    if not names:
        return transformers.AutoModel
    with offline():
        kind = getattr(transformers, str(names[0]), None)
    if not (inspect.isclass(kind) and issubclass(kind, transformers.PreTrainedModel)):
        if getattr(config, "auto_map", None):
            raise _own_code(where)
        raise RequestError(
            f"'{where}' names the class {names[0]}, which transformers {transformers.__version__} has not; "
            "install a release that has it."
        )
    return kind


def _own_code(where: Path) -> RequestError:
    return RequestError(
        f"'{where}' wants Python code of its own (auto_map), which is never run; write a factory that "
        "builds the model, and profile it as torch:file.py:factory."
    )


def random_model(config: Any, *, seed: int, where: Path) -> Module:
    """Make the architecture, in the dtype that the configuration states, with weights from the seed."""
    import torch  # noqa: PLC0415 - heavy

    kind = class_of(config, where)
    make = kind.from_config if kind.__name__ == "AutoModel" else kind
    before = torch.get_default_dtype()
    with offline(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.set_default_dtype(_stated_dtype(config) or before)
        try:
            module: Module = make(config)
        except (ValueError, TypeError, KeyError, AttributeError, AssertionError, ImportError) as error:
            raise RequestError(
                f"{kind.__name__} cannot be made from '{where}': {first_line(error)}; correct it there."
            ) from error
        finally:
            torch.set_default_dtype(before)
    return module.eval()


def _stated_dtype(config: Any) -> Any:
    import torch  # noqa: PLC0415 - heavy

    stated = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None)
    return getattr(torch, stated, None) if isinstance(stated, str) else stated


def stored_dtype() -> dict[str, str]:
    """Say, in the words of this release of transformers, to keep the dtype of the files."""
    import transformers  # noqa: PLC0415 - heavy

    major, minor = (int(part) for part in transformers.__version__.split(".")[:2])
    return {"dtype": "auto"} if (major, minor) >= (4, 56) else {"torch_dtype": "auto"}


def name_of(path: Path) -> str:
    """Call a model by its directory, or by what holds it where that says nothing."""
    place = path.resolve()
    place = place.parent if place.is_file() else place
    if place.parent.name == "snapshots":  # a cache: models--owner--name/snapshots/<commit>
        return place.parent.parent.name.removeprefix("models--").replace("--", "/")
    return place.parent.name if place.name in _DULL_NAMES and place.parent.name else place.name


# --- inputs --------------------------------------------------------------------------------------


def inputs(module: Module, config: Any) -> tuple[InputSpec, ...]:
    """Declare the inputs by what the model says is its main input, and by what forward accepts."""
    accepted = set(inspect.signature(module.forward).parameters)
    main = str(getattr(module, "main_input_name", "input_ids"))
    specs: list[InputSpec] = []
    if "input_ids" in accepted and (main == "input_ids" or _is_two_towers(config)):
        specs += _text_inputs(_part(config, "text_config"), accepted)
    if "pixel_values" in accepted and (main == "pixel_values" or _is_two_towers(config)):
        specs += [_image_input(_part(config, "vision_config"))]
    if main == "input_values":
        specs += [InputSpec(name=main, shape=(BATCH, _SECOND_OF_SOUND), dtype="float32", low=-1, high=1)]
    if main == "input_features":
        specs += [_sound_features(config)]
    if "decoder_input_ids" in accepted and getattr(config, "is_encoder_decoder", False):
        specs += [_token_input("decoder_input_ids", config, "decoder_seq")]
    if specs:
        return tuple(specs)
    return tuple(spec for spec in (InputSpec(name=main),) if spec.name in accepted)


_SECOND_OF_SOUND = 16_000


def _is_two_towers(config: Any) -> bool:
    return hasattr(config, "text_config") and hasattr(config, "vision_config")


def _part(config: Any, name: str) -> Any:
    return getattr(config, name, None) or config


def _text_inputs(config: Any, accepted: set[str]) -> Iterator[InputSpec]:
    tokens = _token_input("input_ids", config, SEQUENCE)
    yield tokens
    if "attention_mask" in accepted:
        yield InputSpec(name="attention_mask", shape=tokens.shape, dtype="int64", low=1, high=1)


def _token_input(name: str, config: Any, dimension: str) -> InputSpec:
    """Declare tokens; the length is free unless the model takes fewer than we would give."""
    most = max_length(config)
    length: Dimension = most if most is not None and most < DEFAULT_LENGTH else dimension
    vocabulary = int(getattr(config, "vocab_size", 0) or 0)
    high = vocabulary - 1 if vocabulary else None
    return InputSpec(name=name, shape=(BATCH, length), dtype="int64", low=0, high=high)


def max_length(config: Any) -> int | None:
    """Give the most tokens that the model takes, or None where positions are relative."""
    config = _part(config, "text_config")
    for name in ("max_position_embeddings", "n_positions", "max_target_positions", "n_ctx"):
        most = getattr(config, name, None)
        if isinstance(most, int) and most > 0:
            return most - _padded_positions(config)
    return None


def _padded_positions(config: Any) -> int:
    """Count the positions that RoBERTa and its kin keep for padding."""
    kind = str(getattr(config, "model_type", ""))
    return int(getattr(config, "pad_token_id", 0) or 0) + 1 if "roberta" in kind else 0


def _image_input(config: Any) -> InputSpec:
    size = getattr(config, "image_size", None) or getattr(config, "input_size", None) or 224
    height, width = (size, size) if isinstance(size, int) else tuple(size)[-2:]
    channels = int(getattr(config, "num_channels", 3) or 3)
    shape = (BATCH, channels, int(height), int(width))
    return InputSpec(name="pixel_values", shape=shape, dtype="float32", low=-1, high=1)


def _sound_features(config: Any) -> InputSpec:
    bins = getattr(config, "num_mel_bins", None) or getattr(config, "feature_size", None) or 80
    length = getattr(config, "max_source_positions", None)
    frames: Dimension = 2 * int(length) if isinstance(length, int) else SEQUENCE  # Whisper halves them
    return InputSpec(name="input_features", shape=(BATCH, int(bins), frames), dtype="float32", low=-1, high=1)


# --- text ----------------------------------------------------------------------------------------


def encoder(
    path: Path, config: Any, declared: tuple[InputSpec, ...]
) -> Callable[[Sequence[str], int | None], Feed] | None:
    """Give the model's own tokenizer as a function, where its files are there."""
    names = {spec.name for spec in declared}
    if "input_ids" not in names or not any((path / name).is_file() for name in _TOKENIZER_FILES):
        return None

    def encode(texts: Sequence[str], length: int | None) -> Feed:
        tokenizer = _tokenizer(path)
        most = max_length(config) or 10**6
        encoded = tokenizer(
            list(texts),
            padding="longest" if length is None else "max_length",
            truncation=True,
            max_length=most if length is None else min(length, most),
            return_tensors="np",
        )
        feed = {name: encoded[name].astype("int64") for name in encoded if name in names}
        if "decoder_input_ids" in names:
            feed["decoder_input_ids"] = _shifted(feed["input_ids"], config)
        return {spec.name: feed[spec.name] for spec in declared if spec.name in feed}

    return encode


def _tokenizer(path: Path) -> Any:
    with offline():
        from transformers import AutoTokenizer  # noqa: PLC0415 - heavy

        try:
            tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
        except Exception as error:
            raise RequestError(
                f"The tokenizer in '{path}' cannot be loaded: {first_line(error)}; give token ids by --input."
            ) from error
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    if tokenizer.pad_token is None:
        raise RequestError(f"The tokenizer in '{path}' has nothing to pad with; give token ids by --input.")
    return tokenizer


def _shifted(tokens: Any, config: Any) -> Any:
    """Give the decoder the same text, one place later, as in training."""
    start = getattr(config, "decoder_start_token_id", None)
    start = getattr(config, "pad_token_id", 0) if start is None else start
    shifted = tokens.copy()
    shifted[:, 1:] = tokens[:, :-1]
    shifted[:, 0] = start or 0
    return shifted
