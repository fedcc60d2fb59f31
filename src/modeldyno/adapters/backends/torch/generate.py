"""Generates tokens with a model of transformers, step by step, so that each step can be timed.

The library's own `generate` prepares everything (masks, positions, the kind of cache that the model
wants) and hands it over before its first step; from there on the loop is ours: greedy, without a
streamer, stopping criteria or logits processors, and with no end of text.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from modeldyno.adapters.backends.torch.backend import quiet
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from torch import Tensor, UntypedStorage, device  # noqa: TC004 - a dataclass, but no document
    from torch.nn import Module

_TOKENS, _MASK = "input_ids", "attention_mask"
_CACHES = ("cache", "past_key_values", "cache_params", "state", "mems", "past_buckets_states")
"""Names under which models take the cache of the step before: `cache` from transformers 5.24 on."""
_POSITIONS = ("max_target_positions", "max_position_embeddings", "n_positions")
"""Names of a configuration for the most tokens that a decoder takes."""


@dataclass(slots=True, kw_only=True)
class Decoding:
    """A prompt on the device, and the model that continues it."""

    model: Any
    """Of transformers."""
    call: Callable[..., Any]
    """The model itself, or what a compiler made of it."""
    inputs: dict[str, Tensor]
    most: int
    """Tokens to generate."""
    left: tuple[Any, ...] = ()
    """Caches: what the last step left."""
    template: Any = None
    """Outputs of the encoder, from which the caches of an encoder-decoder are prepared."""

    def tokens(self) -> Generator[Tensor]:
        """Begin anew, and give a token of each sample at each `next`, as `ports.Decoding` says."""
        self.left = ()  # or it would lie in memory beside the new one
        if self.model.config.is_encoder_decoder and self.template is None:
            self.template = self._encoded()
        ids, arguments = self._prepared()
        return self._steps(ids, arguments, _waiter(ids.device))

    def cache_bytes(self) -> int:
        """Give the bytes of all storages that the cache holds, whether they are full or not."""
        return cache_bytes(self.left)

    def _encoded(self) -> Any:
        encoder = self.model.get_encoder()
        known = inspect.signature(encoder.forward).parameters
        return encoder(**{n: t for n, t in self.inputs.items() if n in known}, return_dict=True)

    def _prepared(self) -> tuple[Tensor, dict[str, Any]]:
        """Have `generate` prepare its first step: the tokens so far, and the arguments beside them."""
        from transformers import GenerationMixin  # noqa: PLC0415 - heavy

        found: list[tuple[Tensor, dict[str, Any]]] = []

        def take(_model: Any, input_ids: Tensor, **arguments: Any) -> Tensor:
            found.append((input_ids, {n: v for n, v in arguments.items() if n not in _OF_THE_LOOP}))
            return input_ids

        encoded = {} if self.template is None else {"encoder_outputs": self.template}
        with quiet():
            # Of the base class: some models' own `generate` does more than generate (Whisper's cuts sound).
            GenerationMixin.generate(
                self.model, **self.inputs, **encoded, custom_generate=take, max_new_tokens=self.most,
                do_sample=False, num_beams=1, use_cache=True, return_dict_in_generate=False,
            )  # fmt: skip
        return found[0]

    def _steps(self, ids: Tensor, arguments: dict[str, Any], wait: Callable[[], None]) -> Generator[Tensor]:
        if self.template is not None:
            arguments["encoder_outputs"] = self._encoded()
        with ExitStack() as stack:
            for place in range(self.most):
                if place == 1:  # some models run their experts in another way where there are few tokens
                    switch = getattr(self.model, "_optimize_model_for_decode", nullcontext)
                    stack.enter_context(switch())
                ids = self._step(ids, arguments, first=place == 0)
                wait()
                yield ids[:, -1:]

    def _step(self, ids: Tensor, arguments: dict[str, Any], *, first: bool) -> Tensor:
        """Give the tokens so far with one more; `arguments` become those of the next step."""
        import torch  # noqa: PLC0415 - heavy

        outputs = self.call(**_inputs(self.model, ids, arguments, first=first), return_dict=True)
        update = self.model._update_model_kwargs_for_generation  # noqa: SLF001 - there is no other way
        arguments.update(update(outputs, arguments, is_encoder_decoder=self.model.config.is_encoder_decoder))
        self.left = tuple(arguments[name] for name in _CACHES if arguments.get(name) is not None)
        return torch.cat([ids, outputs.logits[:, -1].argmax(-1, keepdim=True)], dim=-1)


_OF_THE_LOOP = {
    "logits_processor", "stopping_criteria", "generation_config", "synced_gpus", "streamer",
    "assistant_model", "tokenizer", "assistant_tokenizer",
}  # fmt: skip
"""What `generate` gives to its loop, and the loop does not give to the model."""


def decoding(module: Any, tensors: Mapping[str, Tensor], tokens: int) -> Decoding:
    """Make ready to continue a prompt by so many tokens.

    Args:
        module: of transformers, or what `torch.compile` made of one.
        tensors: what it reads, by the names of its inputs, on its device.
        tokens: to generate for each sample.

    Raises:
        RequestError: it cannot generate, or not so much, or not from these inputs.
    """
    model = getattr(module, "_orig_mod", module)
    _check(model, tensors, tokens)
    inputs = dict(tensors)
    if _TOKENS in inputs and _MASK in inspect.signature(model.forward).parameters:
        # Without a mask, `generate` would take tokens that are equal to the one for padding for padding.
        inputs[_MASK] = inputs[_TOKENS].new_ones(inputs[_TOKENS].shape)
    return Decoding(model=model, call=module, inputs=inputs, most=tokens)


def cache_bytes(cache: Any) -> int:
    """Count the bytes of the storages of all tensors in a cache, each storage once."""
    return sum({storage.data_ptr(): storage.nbytes() for storage in _storages(cache, {})}.values())


def _storages(value: Any, seen: dict[int, Any]) -> Iterator[UntypedStorage]:
    """Look for tensors in containers, and in the attributes of the library's own objects."""
    import torch  # noqa: PLC0415 - heavy

    if id(value) in seen:
        return
    seen[id(value)] = value  # and kept alive, as another object might get its number
    if isinstance(value, torch.Tensor):
        if value.ndim > 1:  # others are counters
            yield value.untyped_storage()
        return
    ours = type(value).__module__.startswith("transformers.") and not isinstance(value, torch.nn.Module)
    parts = getattr(value, "__dict__", {}) if ours and not isinstance(value, dict) else value
    parts = parts.values() if isinstance(parts, dict) else parts
    if isinstance(parts, Iterable) and not isinstance(parts, str):
        for part in parts:
            yield from _storages(part, seen)


# --- one step ------------------------------------------------------------------------------------


def _inputs(model: Any, ids: Tensor, arguments: dict[str, Any], *, first: bool) -> dict[str, Any]:
    """Have the model cut and complete the inputs of a step."""
    prepare = model.prepare_inputs_for_generation
    if _cuts_by_length():
        length = None if first else 1
        found = prepare(ids, next_sequence_length=length, is_first_iteration=first, **arguments)
    else:  # before transformers 5 the places of the new tokens said how to cut
        if first:
            arguments["cache_position"] = ids.new_ones(ids.shape[1]).cumsum(0) - 1
        found = prepare(ids, **arguments)
    return dict(found)


@cache
def _cuts_by_length() -> bool:
    from transformers import GenerationMixin  # noqa: PLC0415 - heavy

    known = inspect.signature(GenerationMixin.prepare_inputs_for_generation).parameters
    return "next_sequence_length" in known


def _waiter(place: device) -> Callable[[], None]:
    """Give what returns when the device has done all that it was asked for."""
    import torch  # noqa: PLC0415 - heavy

    if place.type == "cpu":
        return lambda: None
    done = getattr(torch, place.type).Event()

    def wait() -> None:
        done.record()
        done.synchronize()

    return wait


# --- what cannot be done -------------------------------------------------------------------------


def _check(model: Any, tensors: Mapping[str, Tensor], tokens: int) -> None:
    kind = type(model).__name__
    if not (hasattr(model, "can_generate") and model.can_generate()):
        raise RequestError(f"{kind} cannot generate tokens{_instead(model)}.")
    _check_release()
    main = model.main_input_name
    if main not in tensors:
        raise RequestError(
            f"{kind} generates from '{main}', and is not fed with it; give it by --input {main}=..., with "
            "its shape."
        )
    most = _positions(model.config)
    seq2seq = model.config.is_encoder_decoder
    read = tensors[_TOKENS].shape[1] if _TOKENS in tensors else 1
    needed = max(read, tokens) if seq2seq else read + tokens - 1
    if most is not None and needed > most:
        raise RequestError(
            f"{kind} has {most:,} positions, and a prompt of {read:,} tokens with {tokens:,} generated ones "
            f"needs {needed:,}; ask for fewer by --prompt and --generate."
        )


def _check_release() -> None:
    import transformers  # noqa: PLC0415 - heavy

    major, minor = (int(part) for part in transformers.__version__.split(".")[:2])
    if (major, minor) < _FIRST_RELEASE:
        raise RequestError(
            f"transformers {transformers.__version__} cannot hand its generation over before the first "
            "step; install release 4.57 or later."
        )


_FIRST_RELEASE = (4, 57)


def _positions(config: Any) -> int | None:
    """Give the most tokens that a decoder takes; None where positions are relative."""
    if hasattr(config, "relative_attention_num_buckets"):
        return None
    config = config.get_text_config()
    found = (getattr(config, name, None) for name in _POSITIONS)
    return next((most for most in found if isinstance(most, int) and most > 0), None)


def _instead(model: Module) -> str:
    """Say which class of the same architecture can, where there is one."""
    config = getattr(model, "config", None)
    kind = getattr(config, "model_type", None)
    if not isinstance(kind, str):
        return ": it is no causal or seq2seq model of transformers"
    from transformers.models.auto import modeling_auto as auto  # noqa: PLC0415 - heavy

    tables: tuple[str, ...] = ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",)
    if getattr(config, "is_encoder_decoder", False):
        tables = ("MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES", "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES")
    elif kind in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES:  # an encoder, which reads in both directions
        tables = ()
    names = [name for table in tables if isinstance(name := getattr(auto, table, {}).get(kind), str)]
    if not names:
        return ": no model of this kind chooses the next token"
    return f', as it has no head; name a class that has one in config.json: "architectures": ["{names[0]}"]'
