"""What `hf` and `hf-config` share: class, inputs and tokenizer of a transformers model, offline."""

from __future__ import annotations

import inspect
import json
import logging
import os
import re
import warnings
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from modeldyno.core.spec.input_spec import BATCH, DEFAULT_LENGTH, SEQUENCE, Dimension, InputSpec
from modeldyno.errors import RequestError
from modeldyno.interfaces.load_stages import importing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from torch.nn import Module

    from modeldyno.interfaces import Feed

    Declare = Callable[[Any, Collection[str]], InputSpec]
    """From a configuration, and the names of all inputs, to one of them."""

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
    _check_counts(content, file)
    with offline(), importing():
        from transformers import AutoConfig  # noqa: PLC0415 - heavy

        try:
            return AutoConfig.from_pretrained(file, local_files_only=True, trust_remote_code=False)
        except Exception as error:
            if "auto_map" in content:
                raise _own_code(file) from error
            raise RequestError(
                f"transformers cannot read '{file}': {first_line(error)}; is it a saved model's?"
            ) from error


def _check_counts(content: dict[str, Any], file: Path, path: str = "") -> None:
    """Refuse numbers of parts that would be made one by one for hours, as in a damaged file."""
    for key, value in content.items():
        if isinstance(value, dict):
            _check_counts(value, file, f"{path}{key}.")
        for named, most in _MOST.items():
            if type(value) is int and value > most and named.search(key):
                raise RequestError(
                    f"'{file}' asks for {path}{key} = {value:,}, and more than {most:,} are not built; "
                    "is it damaged?"
                )


_MOST = {
    re.compile(r"(^|_)(n|num)_(\w+_)?(layers?|blocks?)$|(^|_)layers$|(^|_)depth$"): 1_000,
    re.compile(r"^num_labels$|(^|_)(n|num)_(\w+_)?experts$"): 10_000,
}
"""Name of a number in a configuration to the most that it may be."""


def class_of(config: Any, where: Path) -> Any:
    """Find the class that the configuration names first, or the bare model of its type.

    Raises:
        RequestError: the class is not in transformers.
    """
    import transformers  # noqa: PLC0415 - heavy

    names = getattr(config, "architectures", None) or ()
    with offline(), importing():
        if not names:
            with suppress(KeyError):  # of a type that has no bare model: `AutoModel` says so
                transformers.MODEL_MAPPING[type(config)]
            return transformers.AutoModel
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
        except Exception as error:
            if isinstance(error, MemoryError) or "memory" in str(error).lower():
                raise  # there is nothing wrong with the configuration
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
    """Declare the inputs by the main input that the model names, and what forward needs and accepts."""
    parameters = inspect.signature(module.forward).parameters
    main = getattr(module, "main_input_name", None) or "input_ids"
    mains = [main] if isinstance(main, str) else list(main)
    empty = inspect.Parameter.empty
    needed = [p.name for p in parameters.values() if p.default is empty and p.kind in _NAMED]
    wanted = dict.fromkeys(name for name in (*mains, *needed) if name in parameters)
    if "input_ids" in wanted or _is_two_towers(config):
        towers = [name for name, part in _TOWERS.items() if _is_two_towers(config, part)]
        wanted |= dict.fromkeys(name for name in ("input_ids", *towers) if name in parameters)
    for name, companions in _COMPANIONS.items():
        if name in wanted:
            wanted |= dict.fromkeys(companion for companion in companions if companion in parameters)
    if "decoder_input_ids" in parameters and getattr(config, "is_encoder_decoder", False):
        wanted |= {"decoder_input_ids": None}
    specs = [_INPUTS[name](config, wanted) for name in (*_INPUTS,) if name in wanted]
    others = (InputSpec(name=name) for name in mains if name in wanted and name not in _INPUTS)
    return (*specs, *others)


_DECODED = "decoder_seq"
_NAMED = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
_SECOND_OF_SOUND = 16_000
_TOWERS = {"pixel_values": "vision_config", "input_features": "audio_config"}
"""Input to the part of a configuration that says that the model takes it beside text."""
_COMPANIONS: dict[str, tuple[str, ...]] = {
    "input_ids": ("attention_mask", "bbox"),
    "pixel_values": ("spatial_shapes",),
    "spatial_shapes": ("pixel_attention_mask",),
    "states": ("actions", "rewards", "returns_to_go", "timesteps", "attention_mask"),
    "classes_input_ids": ("classes_attention_mask",),
    "qformer_input_ids": ("qformer_attention_mask",),
}
"""Inputs that go with others."""
_SIDE = 16
"""Patches along each side of an image whose size is free, and frames of such a film."""


def _is_two_towers(config: Any, part: str = "vision_config") -> bool:
    """Say whether something else goes in beside text, not in the place of tokens that stand for it."""
    both = hasattr(config, "text_config") and hasattr(config, part)
    kind = {"vision_config": "image", "audio_config": "audio"}[part]
    if not (both or (kind == "image" and hasattr(config, "patch_size") and hasattr(config, "vocab_size"))):
        return False
    return not any(hasattr(config, f"{kind}_token_{end}") for end in ("id", "index"))


def _part(config: Any, name: str) -> Any:
    part = getattr(config, name, None)
    return config if part is None or isinstance(part, dict) else part


def _text(config: Any) -> Any:
    """Find the part of a configuration that tells of text."""
    return next((p for n in ("text_config", "decoder") if (p := _part(config, n)) is not config), config)


def _number(config: Any, *names: str, default: int) -> int:
    """Give the first of these that is a positive whole number."""
    values = (getattr(config, name, None) for name in names)
    return next((v for v in values if isinstance(v, int) and not isinstance(v, bool) and v > 0), default)


def _token_input(name: str, config: Any, dimension: str) -> InputSpec:
    """Declare tokens."""
    vocabulary = _number(config, "vocab_size", default=0) or _number(_text(config), "vocab_size", default=0)
    high = vocabulary - 1 if vocabulary else None
    return InputSpec(name=name, shape=(BATCH, dimension), dtype="int64", low=0, high=high)


def limits(config: Any) -> dict[str, int]:
    """Give the most that each dimension of tokens can be, where the model has so many positions."""
    parts = {
        SEQUENCE: (_text(config), _part(config, "qformer_config")),
        _DECODED: (config,),
    }
    known = {name: [most for part in found if (most := max_length(part))] for name, found in parts.items()}
    return {name: min(most) for name, most in known.items() if most}


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


def _tokens(config: Any, wanted: Collection[str]) -> InputSpec:
    del wanted
    return _token_input("input_ids", _text(config), SEQUENCE)


def _mask(config: Any, wanted: Collection[str]) -> InputSpec:
    shape = (BATCH, SEQUENCE) if "states" in wanted else _tokens(config, wanted).shape
    return InputSpec(name="attention_mask", shape=shape, dtype="int64", low=1, high=1)


def _patches(config: Any) -> tuple[int, int]:
    """Give how many patches there are, and how many numbers each has."""
    config = _part(config, "vision_config")
    side = _number(config, "patch_size", default=16)
    depth = _number(config, "temporal_patch_size", default=1)
    channels = _number(config, "in_channels", "in_chans", "num_channels", default=3)
    return _SIDE**2, channels * depth * side**2


def _image(config: Any, wanted: Collection[str]) -> InputSpec:
    number, size = _patches(config)
    if {"grid_thw", "image_grid_thw"} & set(wanted):
        shape: tuple[Dimension, ...] = (_GRID**3, size)
    elif "spatial_shapes" in wanted:
        shape = (BATCH, number, size)
    else:
        shape = (BATCH, *_picture(config))
    return InputSpec(name="pixel_values", shape=shape, dtype="float32", low=-1, high=1)


_GRID = 4
"""Frames, rows and columns of patches, where the model is told of them."""


def _picture(config: Any) -> tuple[int, ...]:
    """Give the channels, height and width that a model is made for, and the frames of a film before them."""
    config = _part(config, "vision_config")
    parts = (config, _part(config, "backbone_config"))
    sizes = (getattr(p, n, None) for p in parts for n in ("image_size", "input_size", "crop_size"))
    size = next((size for size in sizes if size), 224)
    if isinstance(size, dict):
        size = (size.get("height", 224), size.get("width", 224))
    height, width = (size, size) if isinstance(size, int) else tuple(size)[-2:]
    frames = _number(config, "num_frames", default=0)
    channels = _number(config, "num_channels", "in_channels", "in_chans", default=3)
    return (*((frames,) if frames else ()), channels, int(height), int(width))


def _film(config: Any, wanted: Collection[str]) -> InputSpec:
    del wanted
    config = _part(config, "vision_config")
    frames = _number(config, "num_frames", "frames_per_clip", default=_SIDE)
    shape: tuple[Dimension, ...] = (BATCH, frames, *_picture(config)[-3:])
    return InputSpec(name="pixel_values_videos", shape=shape, dtype="float32", low=-1, high=1)


def _sound(config: Any, wanted: Collection[str]) -> InputSpec:
    """Declare a second of sound, by channel for a codec; a spectrum where the model takes a fixed length."""
    del wanted
    bins, length = _number(config, "num_mel_bins", default=0), _number(config, "max_length", default=0)
    shape: tuple[Dimension, ...] = (BATCH, _SECOND_OF_SOUND)
    if bins and length > DEFAULT_LENGTH:
        shape = (BATCH, length, bins)
    elif hasattr(config, "codebook_size"):
        shape = (BATCH, _number(config, "audio_channels", default=1), _SECOND_OF_SOUND)
    return InputSpec(name="input_values", shape=shape, dtype="float32", low=-1, high=1)


def _sound_features(config: Any, wanted: Collection[str]) -> InputSpec:
    """Declare a spectrum: bins by frames as Whisper has it, or frames by bins."""
    del wanted
    config = _part(_part(config, "audio_config"), "encoder_config")
    names = (
        "num_mel_bins",
        "input_feat_per_channel",
        "feature_projection_input_dim",
        "feature_size",
        "input_dim",
    )
    bins = _number(config, *names, default=80)
    length = _number(config, "max_source_positions", default=0)
    shape: tuple[Dimension, ...] = (BATCH, SEQUENCE, bins)
    if hasattr(config, "spec_size"):
        shape = (BATCH, 1, 4 * int(config.spec_size), bins)
    elif length and not hasattr(config, "input_feat_per_channel"):
        shape = (BATCH, bins, 2 * length)  # Whisper halves them
    return InputSpec(name="input_features", shape=shape, dtype="float32", low=-1, high=1)


def _series(config: Any, wanted: Collection[str]) -> InputSpec:
    del wanted
    length = _number(config, "context_length", default=0) or SEQUENCE
    channels = _number(config, "num_input_channels", default=0)
    return InputSpec(
        name="past_values", shape=(BATCH, length, *((channels,) if channels else ())), dtype="float32"
    )


def _same(
    name: str, shape: Callable[[Any], tuple[Dimension, ...]], value: int, dtype: str = "int64"
) -> Declare:
    """Declare an input that is the same number everywhere."""
    return lambda config, _wanted: InputSpec(
        name=name, shape=(*shape(config),), dtype=dtype, low=value, high=value
    )


def _numbers(name: str, shape: Callable[[Any], tuple[Dimension, ...]]) -> Declare:
    """Declare an input of fractions between 0 and 1, below it."""
    return lambda config, _wanted: InputSpec(
        name=name, shape=(*shape(config),), dtype="float32", low=0.0, high=0.99
    )


def _some_tokens(name: str, part: str, dimension: str = SEQUENCE) -> Declare:
    return lambda config, _wanted: _token_input(name, _part(config, part), dimension)


_INPUTS: dict[str, Declare] = {
    "input_ids": _tokens,
    "attention_mask": _mask,
    "pixel_values": _image,
    "pixel_values_videos": _film,
    "input_values": _sound,
    "input_features": _sound_features,
    "hidden_states": lambda config, _wanted: InputSpec(
        name="hidden_states", shape=(_GRID**3, _patches(config)[1]), dtype="float32", low=-1, high=1
    ),
    "grid_thw": _same("grid_thw", lambda _: (1, 3), _GRID),
    "image_grid_thw": _same("image_grid_thw", lambda _: (1, 3), _GRID),
    "merge_sizes": _same("merge_sizes", lambda _: (1,), 2),
    "spatial_shapes": _same("spatial_shapes", lambda _: (BATCH, 2), _SIDE),
    "pixel_attention_mask": _same("pixel_attention_mask", lambda _: (BATCH, _SIDE**2), 1),
    "input_features_mask": _same("input_features_mask", lambda _: (BATCH, SEQUENCE), 1),
    "flattened_patches": _numbers("flattened_patches", lambda c: (BATCH, _SIDE**2, 2 + _patches(c)[1])),
    "past_values": _series,
    "past_values_padding": _same("past_values_padding", lambda c: _series(c, ()).shape or (), 0),
    "freq": _same("freq", lambda _: (BATCH, 1), 0),
    "inputs": _numbers("inputs", lambda c: (BATCH, SEQUENCE, _number(c, "d_model", default=768))),
    "inputs_embeds": _numbers(
        "inputs_embeds", lambda c: (BATCH, SEQUENCE, _number(_text(c), "hidden_size", "d_model", default=768))
    ),
    "query_embeds": _numbers("query_embeds", lambda c: (BATCH, 32, _number(c, "hidden_size", default=768))),
    "latents": _numbers("latents", lambda c: (BATCH, _number(c, "hidden_size", default=512), SEQUENCE)),
    "states": _numbers("states", lambda c: (BATCH, SEQUENCE, _number(c, "state_dim", default=17))),
    "actions": _numbers("actions", lambda c: (BATCH, SEQUENCE, _number(c, "act_dim", default=4))),
    "rewards": _numbers("rewards", lambda _: (BATCH, SEQUENCE, 1)),
    "returns_to_go": _numbers("returns_to_go", lambda _: (BATCH, SEQUENCE, 1)),
    "timesteps": _same("timesteps", lambda _: (BATCH, SEQUENCE), 1),
    "task_inputs": _same("task_inputs", lambda c: (BATCH, _number(c, "task_seq_len", default=77)), 1),
    "qformer_input_ids": _some_tokens("qformer_input_ids", "qformer_config"),
    "bbox": _same("bbox", lambda _: (BATCH, SEQUENCE, 4), 0),
    "decoder_input_ids": lambda config, _wanted: _token_input("decoder_input_ids", config, _DECODED),
}
"""How each input is declared, by its name, in the order in which they are listed."""


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
