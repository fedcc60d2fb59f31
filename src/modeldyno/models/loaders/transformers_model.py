"""Class, inputs and tokenizer of a transformers model, offline; shared by `hf` and `hf-config`."""

from __future__ import annotations

import inspect
import json
import logging
import re
import warnings
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError, is_out_of_memory
from modeldyno.base.job.input_spec import BATCH, DEFAULT_LENGTH, SEQUENCE, Dimension, InputSpec
from modeldyno.base.system.variables import variables_set
from modeldyno.models.load_stages import importing
from modeldyno.models.loaders import python_source
from modeldyno.models.loaders.torch_inputs import ModuleInputs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from torch.nn import Module

    from modeldyno.models.interface import Feed

    Declare = Callable[[Any, Collection[str]], InputSpec]
    """From a configuration and the names of all inputs, to the declaration of one input."""

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "spiece.model")
_GENERIC_NAMES = {"model", "config", "checkpoint", "weights", "hf", "."}


# --- quiet and offline ---------------------------------------------------------------------------


@contextmanager
def offline() -> Iterator[None]:
    """Keep transformers off the network and quiet; everything is restored on leaving."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with variables_set(_ENVIRONMENT), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with _without_progress():
                yield
    finally:
        logging.disable(disabled)


_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DISABLE_SAFETENSORS_CONVERSION": "1",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
}


@contextmanager
def _without_progress() -> Iterator[None]:
    from huggingface_hub import constants  # comes with transformers
    from transformers.utils import logging as hf_logging  # heavy

    # huggingface_hub reads the environment when it is imported, which may have happened before.
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
    """Return the first line of an exception's message, without a full stop."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip(" .:")


# --- configuration and class ---------------------------------------------------------------------


def read_configuration(path: Path) -> Any:
    """Read a configuration.

    Raises:
        RequestError: it is damaged, of an unknown type, or needs its own code.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise RequestError(f"'{file}' is not JSON: {first_line(error)}; copy it again.") from error
    if not isinstance(content, dict):
        raise RequestError(f"'{file}' is not a transformers configuration; give one with a model_type.")
    _check_counts(content, file)
    with offline(), importing():
        from transformers import AutoConfig  # heavy

        try:
            return AutoConfig.from_pretrained(file, local_files_only=True, trust_remote_code=False)
        except Exception as error:
            if "auto_map" in content:
                raise _own_code_error(file) from error
            raise RequestError(
                f"transformers cannot read '{file}': {first_line(error)}; is it the config.json of a "
                "saved model?"
            ) from error


def _check_counts(content: dict[str, Any], file: Path, path: str = "") -> None:
    """Reject counts of parts that would take hours to build, as in a damaged file."""
    for key, value in content.items():
        if isinstance(value, dict):
            _check_counts(value, file, f"{path}{key}.")
        for pattern, limit in _MAX_COUNTS.items():
            if type(value) is int and value > limit and pattern.search(key):
                raise RequestError(
                    f"'{file}' asks for {path}{key} = {value:,}, but at most {limit:,} are built; "
                    "is it damaged?"
                )


_MAX_COUNTS = {
    re.compile(r"(^|_)(n|num)_(\w+_)?(layers?|blocks?)$|(^|_)layers$|(^|_)depth$"): 1_000,
    re.compile(r"^num_labels$|(^|_)(n|num)_(\w+_)?experts$"): 10_000,
}
"""Name of a count in a configuration to its maximum."""


def configured_class(config: Any, where: Path) -> Any:
    """Return the class that the configuration names first, or the base model of its type.

    Raises:
        RequestError: the class is not in transformers.
    """
    import transformers  # heavy

    names = getattr(config, "architectures", None) or ()
    with offline(), importing():
        if not names:
            with suppress(KeyError):  # a type without a base model: `AutoModel` raises
                transformers.MODEL_MAPPING[type(config)]
            return transformers.AutoModel
        model_class = getattr(transformers, str(names[0]), None)
    if not (inspect.isclass(model_class) and issubclass(model_class, transformers.PreTrainedModel)):
        if getattr(config, "auto_map", None):
            raise _own_code_error(where)
        raise RequestError(
            f"'{where}' names the class {names[0]}, which transformers {transformers.__version__} does not "
            "have; install a release that has it."
        )
    return model_class


def _own_code_error(where: Path) -> RequestError:
    return RequestError(
        f"'{where}' needs its own Python code (auto_map), which is never run; write a factory that "
        "builds the model, and profile it as torch:file.py:factory."
    )


def random_model(config: Any, *, seed: int, where: Path) -> Module:
    """Build the architecture, in the dtype that the configuration states, with weights from the seed."""
    import torch  # heavy

    model_class = configured_class(config, where)
    constructor = model_class.from_config if model_class.__name__ == "AutoModel" else model_class
    default_dtype = torch.get_default_dtype()
    with offline(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.set_default_dtype(_stated_dtype(config) or default_dtype)
        try:
            module: Module = constructor(config)
        except Exception as error:
            if is_out_of_memory(error):
                raise  # the configuration is not to blame
            raise RequestError(
                f"{model_class.__name__} cannot be built from '{where}': {first_line(error)}; "
                "correct it there."
            ) from error
        finally:
            torch.set_default_dtype(default_dtype)
    return module.eval()


def _stated_dtype(config: Any) -> Any:
    import torch  # heavy

    stated = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None)
    return getattr(torch, stated, None) if isinstance(stated, str) else stated


def stored_dtype() -> dict[str, str]:
    """Return the option of this transformers release that keeps the dtype of the files."""
    import transformers  # heavy

    major, minor = (int(part) for part in transformers.__version__.split(".")[:2])
    return {"dtype": "auto"} if (major, minor) >= (4, 56) else {"torch_dtype": "auto"}


def model_name(path: Path) -> str:
    """Name a model by its directory, or by the parent where that name is generic."""
    directory = path.resolve()
    directory = directory.parent if directory.is_file() else directory
    if directory.parent.name == "snapshots":  # a cache: models--owner--name/snapshots/<commit>
        return directory.parent.parent.name.removeprefix("models--").replace("--", "/")
    return (
        directory.parent.name
        if directory.name in _GENERIC_NAMES and directory.parent.name
        else directory.name
    )


# --- inputs --------------------------------------------------------------------------------------


def describe_inputs(module: Module, config: Any) -> ModuleInputs:
    """Describe the model's inputs: those that it is called with, and others that forward takes."""
    inputs = declare_inputs(module, config)
    names = [spec.name for spec in inputs]
    optional = tuple(
        _INPUTS[name](config, names) if name in _OPTIONAL else InputSpec(name=name)
        for name in python_source.parameters(module.forward)
        if name not in names
    )
    return ModuleInputs(inputs=inputs, optional=optional, instead=_INSTEAD, limits=token_limits(config))


def declare_inputs(module: Module, config: Any) -> tuple[InputSpec, ...]:
    """Declare the model's main input, and the inputs that forward needs and accepts."""
    parameters = inspect.signature(module.forward).parameters
    main = getattr(module, "main_input_name", None) or "input_ids"
    main_inputs = [main] if isinstance(main, str) else list(main)
    empty = inspect.Parameter.empty
    needed = [p.name for p in parameters.values() if p.default is empty and p.kind in _POSITIONAL]
    names = dict.fromkeys(name for name in (*main_inputs, *needed) if name in parameters)
    if "input_ids" in names or _has_separate_tower(config):
        towers = [name for name, part in _TOWERS.items() if _has_separate_tower(config, part)]
        names |= dict.fromkeys(name for name in ("input_ids", *towers) if name in parameters)
    for name, companions in _COMPANIONS.items():
        if name in names:
            names |= dict.fromkeys(companion for companion in companions if companion in parameters)
    if "decoder_input_ids" in parameters and getattr(config, "is_encoder_decoder", False):
        names |= {"decoder_input_ids": None}
    specs = [_INPUTS[name](config, names) for name in (*_INPUTS,) if name in names]
    return (*specs, *(InputSpec(name=name) for name in names if name not in _INPUTS))


_DECODER_SEQUENCE = "decoder_seq"
_POSITIONAL = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
_AUDIO_SECOND = 16_000
_TOWERS = {"pixel_values": "vision_config", "input_features": "audio_config"}
"""Input to the part of a configuration that shows that the model takes it together with text."""
_COMPANIONS: dict[str, tuple[str, ...]] = {
    "input_ids": ("attention_mask", "bbox"),
    "pixel_values": ("spatial_shapes",),
    "spatial_shapes": ("pixel_attention_mask",),
    "states": ("actions", "rewards", "returns_to_go", "timesteps", "attention_mask"),
    "classes_input_ids": ("classes_attention_mask",),
    "qformer_input_ids": ("qformer_attention_mask",),
}
"""Inputs that accompany others."""
_OPTIONAL = ("inputs_embeds", "token_type_ids", "decoder_input_ids", "decoder_attention_mask")
"""Inputs that are declared where the user names one and the model does not need it."""
_INSTEAD = {"inputs_embeds": "input_ids", "decoder_inputs_embeds": "decoder_input_ids"}
_PATCHES_PER_SIDE = 16
"""Patches along each side of an image of dynamic size, and frames of such a video."""


def _has_separate_tower(config: Any, part: str = "vision_config") -> bool:
    """Whether an image or audio is a separate input next to text, not in place of placeholder tokens."""
    has_both = hasattr(config, "text_config") and hasattr(config, part)
    modality = {"vision_config": "image", "audio_config": "audio"}[part]
    if not (
        has_both or (modality == "image" and hasattr(config, "patch_size") and hasattr(config, "vocab_size"))
    ):
        return False
    return not any(hasattr(config, f"{modality}_token_{suffix}") for suffix in ("id", "index"))


def _part(config: Any, name: str) -> Any:
    part = getattr(config, name, None)
    return config if part is None or isinstance(part, dict) else part


def _text(config: Any) -> Any:
    """Return the part of a configuration that describes text."""
    return next((p for n in ("text_config", "decoder") if (p := _part(config, n)) is not config), config)


def _first_number(config: Any, *names: str, default: int) -> int:
    """Return the first of these that is a positive integer."""
    values = (getattr(config, name, None) for name in names)
    return next((v for v in values if isinstance(v, int) and not isinstance(v, bool) and v > 0), default)


def _token_input(name: str, config: Any, dimension: str) -> InputSpec:
    """Declare a tensor of token ids."""
    vocabulary = _first_number(config, "vocab_size", default=0) or _first_number(
        _text(config), "vocab_size", default=0
    )
    high = vocabulary - 1 if vocabulary else None
    return InputSpec(name=name, shape=(BATCH, dimension), dtype="int64", low=0, high=high)


def token_limits(config: Any) -> dict[str, int]:
    """Return the maximum of each token dimension, where the number of positions is limited."""
    parts = {
        SEQUENCE: (_text(config), _part(config, "qformer_config")),
        _DECODER_SEQUENCE: (config,),
    }
    maxima = {
        name: [length for part in configs if (length := max_length(part))] for name, configs in parts.items()
    }
    return {name: min(length) for name, length in maxima.items() if length}


def max_length(config: Any) -> int | None:
    """Return the maximum number of tokens, or None where positions are relative."""
    config = _part(config, "text_config")
    for name in ("max_position_embeddings", "n_positions", "max_target_positions", "n_ctx"):
        length = getattr(config, name, None)
        if isinstance(length, int) and length > 0:
            return length - _padded_positions(config)
    return None


def _padded_positions(config: Any) -> int:
    """Count the positions that RoBERTa and relatives reserve for padding."""
    kind = str(getattr(config, "model_type", ""))
    return int(getattr(config, "pad_token_id", 0) or 0) + 1 if "roberta" in kind else 0


def _tokens(config: Any, input_names: Collection[str]) -> InputSpec:
    del input_names
    return _token_input("input_ids", _text(config), SEQUENCE)


def _mask(config: Any, input_names: Collection[str]) -> InputSpec:
    shape = (BATCH, SEQUENCE) if "states" in input_names else _tokens(config, input_names).shape
    return InputSpec(name="attention_mask", shape=shape, dtype="int64", low=1, high=1)


def _patches(config: Any) -> tuple[int, int]:
    """Return the number of patches, and the values in each."""
    config = _part(config, "vision_config")
    side = _first_number(config, "patch_size", default=16)
    depth = _first_number(config, "temporal_patch_size", default=1)
    channels = _first_number(config, "in_channels", "in_chans", "num_channels", default=3)
    return _PATCHES_PER_SIDE**2, channels * depth * side**2


def _image(config: Any, input_names: Collection[str]) -> InputSpec:
    patches, size = _patches(config)
    if {"grid_thw", "image_grid_thw"} & set(input_names):
        shape: tuple[Dimension, ...] = (_GRID**3, size)
    elif "spatial_shapes" in input_names:
        shape = (BATCH, patches, size)
    else:
        shape = (BATCH, *_image_shape(config))
    return InputSpec(name="pixel_values", shape=shape, dtype="float32", low=-1, high=1)


_GRID = 4
"""Frames, rows and columns of patches, where the model takes them as input."""


def _image_shape(config: Any) -> tuple[int, ...]:
    """Return the channels, height and width of images, with the frames of a video before them."""
    config = _part(config, "vision_config")
    parts = (config, _part(config, "backbone_config"))
    sizes = (getattr(p, n, None) for p in parts for n in ("image_size", "input_size", "crop_size"))
    size = next((size for size in sizes if size), 224)
    if isinstance(size, dict):
        size = (size.get("height", 224), size.get("width", 224))
    height, width = (size, size) if isinstance(size, int) else tuple(size)[-2:]
    frames = _first_number(config, "num_frames", default=0)
    channels = _first_number(config, "num_channels", "in_channels", "in_chans", default=3)
    return (*((frames,) if frames else ()), channels, int(height), int(width))


def _video(config: Any, input_names: Collection[str]) -> InputSpec:
    del input_names
    config = _part(config, "vision_config")
    frames = _first_number(config, "num_frames", "frames_per_clip", default=_PATCHES_PER_SIDE)
    shape: tuple[Dimension, ...] = (BATCH, frames, *_image_shape(config)[-3:])
    return InputSpec(name="pixel_values_videos", shape=shape, dtype="float32", low=-1, high=1)


def _audio(config: Any, input_names: Collection[str]) -> InputSpec:
    """Declare a second of audio, by channel for a codec; a spectrogram where the length is fixed."""
    del input_names
    bins, length = (
        _first_number(config, "num_mel_bins", default=0),
        _first_number(config, "max_length", default=0),
    )
    shape: tuple[Dimension, ...] = (BATCH, _AUDIO_SECOND)
    if bins and length > DEFAULT_LENGTH:
        shape = (BATCH, length, bins)
    elif hasattr(config, "codebook_size"):
        shape = (BATCH, _first_number(config, "audio_channels", default=1), _AUDIO_SECOND)
    return InputSpec(name="input_values", shape=shape, dtype="float32", low=-1, high=1)


def _audio_features(config: Any, input_names: Collection[str]) -> InputSpec:
    """Declare a spectrogram: bins by frames as in Whisper, or frames by bins."""
    del input_names
    config = _part(_part(config, "audio_config"), "encoder_config")
    names = (
        "num_mel_bins",
        "input_feat_per_channel",
        "feature_projection_input_dim",
        "feature_size",
        "input_dim",
    )
    bins = _first_number(config, *names, default=80)
    length = _first_number(config, "max_source_positions", default=0)
    shape: tuple[Dimension, ...] = (BATCH, SEQUENCE, bins)
    if hasattr(config, "spec_size"):
        shape = (BATCH, 1, 4 * int(config.spec_size), bins)
    elif length and not hasattr(config, "input_feat_per_channel"):
        shape = (BATCH, bins, 2 * length)  # Whisper halves them
    return InputSpec(name="input_features", shape=shape, dtype="float32", low=-1, high=1)


def _series(config: Any, input_names: Collection[str]) -> InputSpec:
    del input_names
    length = _first_number(config, "context_length", default=0) or SEQUENCE
    channels = _first_number(config, "num_input_channels", default=0)
    return InputSpec(
        name="past_values", shape=(BATCH, length, *((channels,) if channels else ())), dtype="float32"
    )


def _constant_input(
    name: str, shape: Callable[[Any], tuple[Dimension, ...]], value: int, dtype: str = "int64"
) -> Declare:
    """Declare an input with the same value everywhere."""
    return lambda config, _input_names: InputSpec(
        name=name, shape=(*shape(config),), dtype=dtype, low=value, high=value
    )


def _float_input(name: str, shape: Callable[[Any], tuple[Dimension, ...]]) -> Declare:
    """Declare an input of floats from 0 to below 1."""
    return lambda config, _input_names: InputSpec(
        name=name, shape=(*shape(config),), dtype="float32", low=0.0, high=0.99
    )


def _part_tokens(name: str, part: str, dimension: str = SEQUENCE) -> Declare:
    return lambda config, _input_names: _token_input(name, _part(config, part), dimension)


_INPUTS: dict[str, Declare] = {
    "input_ids": _tokens,
    "attention_mask": _mask,
    "pixel_values": _image,
    "pixel_values_videos": _video,
    "input_values": _audio,
    "input_features": _audio_features,
    "hidden_states": lambda config, _input_names: InputSpec(
        name="hidden_states", shape=(_GRID**3, _patches(config)[1]), dtype="float32", low=-1, high=1
    ),
    "grid_thw": _constant_input("grid_thw", lambda _: (1, 3), _GRID),
    "image_grid_thw": _constant_input("image_grid_thw", lambda _: (1, 3), _GRID),
    "merge_sizes": _constant_input("merge_sizes", lambda _: (1,), 2),
    "spatial_shapes": _constant_input("spatial_shapes", lambda _: (BATCH, 2), _PATCHES_PER_SIDE),
    "pixel_attention_mask": _constant_input(
        "pixel_attention_mask", lambda _: (BATCH, _PATCHES_PER_SIDE**2), 1
    ),
    "input_features_mask": _constant_input("input_features_mask", lambda _: (BATCH, SEQUENCE), 1),
    "flattened_patches": _float_input(
        "flattened_patches", lambda c: (BATCH, _PATCHES_PER_SIDE**2, 2 + _patches(c)[1])
    ),
    "past_values": _series,
    "past_values_padding": _constant_input("past_values_padding", lambda c: _series(c, ()).shape or (), 0),
    "freq": _constant_input("freq", lambda _: (BATCH, 1), 0),
    "inputs": _float_input("inputs", lambda c: (BATCH, SEQUENCE, _first_number(c, "d_model", default=768))),
    "inputs_embeds": _float_input(
        "inputs_embeds",
        lambda c: (BATCH, SEQUENCE, _first_number(_text(c), "hidden_size", "d_model", default=768)),
    ),
    "query_embeds": _float_input(
        "query_embeds", lambda c: (BATCH, 32, _first_number(c, "hidden_size", default=768))
    ),
    "latents": _float_input(
        "latents", lambda c: (BATCH, _first_number(c, "hidden_size", default=512), SEQUENCE)
    ),
    "states": _float_input("states", lambda c: (BATCH, SEQUENCE, _first_number(c, "state_dim", default=17))),
    "actions": _float_input("actions", lambda c: (BATCH, SEQUENCE, _first_number(c, "act_dim", default=4))),
    "rewards": _float_input("rewards", lambda _: (BATCH, SEQUENCE, 1)),
    "returns_to_go": _float_input("returns_to_go", lambda _: (BATCH, SEQUENCE, 1)),
    "timesteps": _constant_input("timesteps", lambda _: (BATCH, SEQUENCE), 1),
    "task_inputs": _constant_input(
        "task_inputs", lambda c: (BATCH, _first_number(c, "task_seq_len", default=77)), 1
    ),
    "qformer_input_ids": _part_tokens("qformer_input_ids", "qformer_config"),
    "token_type_ids": lambda config, _input_names: InputSpec(
        name="token_type_ids",
        shape=(BATCH, SEQUENCE),
        dtype="int64",
        low=0,
        high=_first_number(_text(config), "type_vocab_size", default=1) - 1,
    ),
    "decoder_attention_mask": _constant_input(
        "decoder_attention_mask", lambda _: (BATCH, _DECODER_SEQUENCE), 1
    ),
    "bbox": _constant_input("bbox", lambda _: (BATCH, SEQUENCE, 4), 0),
    "decoder_input_ids": lambda config, _input_names: _token_input(
        "decoder_input_ids", config, _DECODER_SEQUENCE
    ),
}
"""How to declare each input, by name, in the order in which they are listed."""


# --- text ----------------------------------------------------------------------------------------


def text_encoder(
    path: Path, config: Any, declared: tuple[InputSpec, ...]
) -> Callable[[Sequence[str], int | None], Feed] | None:
    """Return the model's own tokenizer as a function, if its files exist."""
    names = {spec.name for spec in declared}
    if "input_ids" not in names or not any((path / name).is_file() for name in _TOKENIZER_FILES):
        return None

    def encode(texts: Sequence[str], length: int | None) -> Feed:
        tokenizer = _tokenizer(path)
        length_limit = max_length(config) or 10**6
        encoded = tokenizer(
            list(texts),
            padding="longest" if length is None else "max_length",
            truncation=True,
            max_length=length_limit if length is None else min(length, length_limit),
            return_tensors="np",
        )
        feed = {name: encoded[name].astype("int64") for name in encoded if name in names}
        if "decoder_input_ids" in names:
            feed["decoder_input_ids"] = _shift_right(feed["input_ids"], config)
        return {spec.name: feed[spec.name] for spec in declared if spec.name in feed}

    return encode


def _tokenizer(path: Path) -> Any:
    with offline():
        from transformers import AutoTokenizer  # heavy

        try:
            tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
        except Exception as error:
            raise RequestError(
                f"The tokenizer in '{path}' cannot be loaded: {first_line(error)}; give token ids by "
                "`inputs`."
            ) from error
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    if tokenizer.pad_token is None:
        raise RequestError(f"The tokenizer in '{path}' has no padding token; give token ids by `inputs`.")
    return tokenizer


def _shift_right(tokens: Any, config: Any) -> Any:
    """Return the decoder's input: the same text, shifted by one position, as in training."""
    start = getattr(config, "decoder_start_token_id", None)
    start = getattr(config, "pad_token_id", 0) if start is None else start
    shifted = tokens.copy()
    shifted[:, 1:] = tokens[:, :-1]
    shifted[:, 0] = start or 0
    return shifted
