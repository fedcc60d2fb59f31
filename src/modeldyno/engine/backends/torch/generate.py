"""Generates tokens with a Transformers model, step by step, so that each step can be timed.

The library's own `generate` prepares everything (masks, positions, the kind of cache that the model
needs) and hands over before its first step; from there on the loop is ours: greedy, without streamer,
stopping criteria or logits processors, and with no end-of-text check.
"""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Callable, Iterable
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from torch import Tensor, UntypedStorage, device
    from torch.nn import Module

_TOKENS, _MASK = "input_ids", "attention_mask"
_CACHES = ("cache", "past_key_values", "cache_params", "state", "mems", "past_buckets_states")
"""Arguments by which models take the cache of the previous step: `cache` from transformers 5.24 on."""
_POSITIONS = ("max_target_positions", "max_position_embeddings", "n_positions")
"""Configuration fields for the maximum number of positions of a decoder."""
_LOOP_ARGUMENTS = {
    "logits_processor", "stopping_criteria", "generation_config", "synced_gpus", "streamer",
    "assistant_model", "tokenizer", "assistant_tokenizer",
}  # fmt: skip
"""Arguments that `generate` passes to its loop, and the loop does not pass to the model."""
_FIRST_RELEASE = (4, 57)


@dataclass(slots=True, kw_only=True)
class TorchDecoding:
    """A prompt on the device and the model that continues it."""

    model: Any
    """A Transformers model."""
    call: Callable[..., Any]
    """The model itself, or its compiled form."""
    inputs: dict[str, Tensor]
    most: int
    """Tokens to generate."""
    left: tuple[Any, ...] = ()
    """The caches that the last step returned."""
    template: Any = None
    """Outputs of the encoder, from which the caches of an encoder-decoder are prepared."""

    def tokens(self) -> Generator[Tensor]:
        """Start a new generation that yields a token per sample at each `next`; see `Decoding`."""
        self.left = ()  # else the old cache would stay in memory next to the new one
        if self.model.config.is_encoder_decoder and self.template is None:
            self.template = self._encode()
        ids, arguments = self._prepare()
        return self._steps(ids, arguments, _make_waiter(ids.device))

    def cache_bytes(self) -> int:
        """Return the bytes of all storages of the cache, whether they are full or not."""
        return cache_bytes(self.left)

    def _encode(self) -> Any:
        encoder = self.model.get_encoder()
        parameters = inspect.signature(encoder.forward).parameters
        return encoder(**{n: t for n, t in self.inputs.items() if n in parameters}, return_dict=True)

    def _prepare(self) -> tuple[Tensor, dict[str, Any]]:
        """Let `generate` prepare its first step: the tokens so far and the other arguments."""
        from transformers import GenerationMixin  # heavy

        prepared: list[tuple[Tensor, dict[str, Any]]] = []

        def take(_model: Any, input_ids: Tensor, **arguments: Any) -> Tensor:
            prepared.append((input_ids, {n: v for n, v in arguments.items() if n not in _LOOP_ARGUMENTS}))
            return input_ids

        encoder_outputs = {} if self.template is None else {"encoder_outputs": self.template}
        with quiet():
            # From the base class: some models override `generate` to do more (Whisper splits the audio).
            GenerationMixin.generate(
                self.model, **self.inputs, **encoder_outputs, custom_generate=take, max_new_tokens=self.most,
                do_sample=False, num_beams=1, use_cache=True, return_dict_in_generate=False,
            )  # fmt: skip
        return prepared[0]

    def _steps(self, ids: Tensor, arguments: dict[str, Any], wait: Callable[[], None]) -> Generator[Tensor]:
        if self.template is not None:
            arguments["encoder_outputs"] = self._encode()
        with ExitStack() as stack:
            for index in range(self.most):
                if index == 1:  # some mixture-of-experts models switch to another path for few tokens
                    switch = getattr(self.model, "_optimize_model_for_decode", nullcontext)
                    stack.enter_context(switch())
                ids = self._step(ids, arguments, first=index == 0)
                wait()
                yield ids[:, -1:]

    def _step(self, ids: Tensor, arguments: dict[str, Any], *, first: bool) -> Tensor:
        """Return the tokens so far plus one; update `arguments` for the next step."""
        import torch  # heavy

        outputs = self.call(**_step_inputs(self.model, ids, arguments, first=first), return_dict=True)
        update = self.model._update_model_kwargs_for_generation
        arguments.update(update(outputs, arguments, is_encoder_decoder=self.model.config.is_encoder_decoder))
        self.left = tuple(arguments[name] for name in _CACHES if arguments.get(name) is not None)
        return torch.cat([ids, outputs.logits[:, -1].argmax(-1, keepdim=True)], dim=-1)


def prepare_decoding(module: Any, tensors: Mapping[str, Tensor], tokens: int) -> TorchDecoding:
    """Prepare to continue a prompt by `tokens` tokens.

    Args:
        module: a Transformers model, or what `torch.compile` returned for one.
        tensors: the prompt on the model's device, by input name.
        tokens: number of tokens to generate for each sample.

    Raises:
        RequestError: the model cannot generate, not this many tokens, or not from these inputs.
    """
    model = getattr(module, "_orig_mod", module)
    _check_supported(model, tensors, tokens)
    inputs = dict(tensors)
    if _TOKENS in inputs and _MASK in inspect.signature(model.forward).parameters:
        # Without a mask, `generate` would treat tokens equal to the padding token as padding.
        inputs[_MASK] = inputs[_TOKENS].new_ones(inputs[_TOKENS].shape)
    return TorchDecoding(model=model, call=module, inputs=inputs, most=tokens)


def cache_bytes(cache: Any) -> int:
    """Sum the bytes of the storages of all tensors in a cache, each storage once."""
    return sum({storage.data_ptr(): storage.nbytes() for storage in _storages(cache, {})}.values())


def _storages(value: Any, visited: dict[int, Any]) -> Iterator[UntypedStorage]:
    """Yield the storages of tensors in containers and in attributes of Transformers objects."""
    import torch  # heavy

    if id(value) in visited:
        return
    visited[id(value)] = value  # kept alive, as its id could be reused otherwise
    if isinstance(value, torch.Tensor):
        if value.ndim > 1:  # one-dimensional ones are counters
            yield value.untyped_storage()
        return
    is_transformers = type(value).__module__.startswith("transformers.") and not isinstance(
        value, torch.nn.Module
    )
    parts = getattr(value, "__dict__", {}) if is_transformers and not isinstance(value, dict) else value
    parts = parts.values() if isinstance(parts, dict) else parts
    if isinstance(parts, Iterable) and not isinstance(parts, str):
        for part in parts:
            yield from _storages(part, visited)


# --- one step ------------------------------------------------------------------------------------


def _step_inputs(model: Any, ids: Tensor, arguments: dict[str, Any], *, first: bool) -> dict[str, Any]:
    """Let the model slice and complete the inputs of a step."""
    prepare = model.prepare_inputs_for_generation
    if _takes_sequence_length():
        length = None if first else 1
        inputs = prepare(ids, next_sequence_length=length, is_first_iteration=first, **arguments)
    else:  # before transformers 5, `cache_position` determined the slice
        if first:
            arguments["cache_position"] = ids.new_ones(ids.shape[1]).cumsum(0) - 1
        inputs = prepare(ids, **arguments)
    return dict(inputs)


@cache
def _takes_sequence_length() -> bool:
    from transformers import GenerationMixin  # heavy

    parameters = inspect.signature(GenerationMixin.prepare_inputs_for_generation).parameters
    return "next_sequence_length" in parameters


def _make_waiter(device: device) -> Callable[[], None]:
    """Return a function that blocks until the device has finished all submitted work."""
    import torch  # heavy

    if device.type == "cpu":
        return lambda: None
    done = getattr(torch, device.type).Event()

    def wait() -> None:
        done.record()
        done.synchronize()

    return wait


# --- unsupported requests ------------------------------------------------------------------------


def _check_supported(model: Any, tensors: Mapping[str, Tensor], tokens: int) -> None:
    kind = type(model).__name__
    if not (hasattr(model, "can_generate") and model.can_generate()):
        raise RequestError(f"{kind} cannot generate tokens{_why_not(model)}.")
    _check_release()
    main = model.main_input_name
    if main not in tensors:
        raise RequestError(
            f"{kind} generates from '{main}', which is not among the inputs; give it with its "
            f"shape, such as `inputs={main}=1x128:int64`."
        )
    max_positions = _max_positions(model.config)
    seq2seq = model.config.is_encoder_decoder
    prompt_length = tensors[_TOKENS].shape[1] if _TOKENS in tensors else 1
    needed = max(prompt_length, tokens) if seq2seq else prompt_length + tokens - 1
    if max_positions is not None and needed > max_positions:
        raise RequestError(
            f"{kind} has {max_positions:,} positions, but a prompt of {prompt_length:,} tokens plus "
            f"{tokens:,} generated ones needs {needed:,}; reduce `prompt` or `generate`."
        )


def _check_release() -> None:
    import transformers  # heavy

    major, minor = (int(part) for part in transformers.__version__.split(".")[:2])
    if (major, minor) < _FIRST_RELEASE:
        raise RequestError(
            f"transformers {transformers.__version__} is too old to time generation step by step; "
            "install release 4.57 or later."
        )


def _max_positions(config: Any) -> int | None:
    """Return the maximum number of positions of a decoder; None if positions are relative."""
    if hasattr(config, "relative_attention_num_buckets"):
        return None
    config = config.get_text_config()
    limits = (getattr(config, name, None) for name in _POSITIONS)
    return next((limit for limit in limits if isinstance(limit, int) and limit > 0), None)


def _why_not(model: Module) -> str:
    """Explain why a model cannot generate; name a class of the same architecture that can."""
    config = getattr(model, "config", None)
    kind = getattr(config, "model_type", None)
    if not isinstance(kind, str):
        return ": it is not a causal or seq2seq model of Transformers"
    from transformers.models.auto import modeling_auto as auto  # heavy

    tables: tuple[str, ...] = ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",)
    if getattr(config, "is_encoder_decoder", False):
        tables = ("MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES", "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES")
    elif kind in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES:  # an encoder, which reads in both directions
        tables = ()
    names = [name for table in tables if isinstance(name := getattr(auto, table, {}).get(kind), str)]
    if not names:
        return ": no model of this kind chooses the next token"
    return (
        f', as it lacks an LM head; name a class that has one in config.json: "architectures": ["{names[0]}"]'
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings and log records up to WARNING, as libraries emit them on import and set-up."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
