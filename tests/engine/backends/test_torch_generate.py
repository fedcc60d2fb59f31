"""Greedy steps of the torch backend against transformers' own `generate`, and caches against arithmetic."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("transformers")

import torch
import transformers

from modeldyno.base.errors import RequestError
from modeldyno.base.job.job import Job
from modeldyno.base.job.knob import configure
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.job.probe_options import ProbeOptions
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.engine.backends.torch import backend
from modeldyno.engine.backends.torch import generate as torch_generate
from modeldyno.engine.interfaces.session import CanGenerate
from modeldyno.engine.runtime.engine import run
from modeldyno.models.loaders import live_object as objects
from modeldyno.models.loaders.transformers_model import offline
from modeldyno.testing.loaders import is_one_sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BATCH, PROMPT, TOKENS, VOCABULARY = 3, 9, 12, 97
_SPECIAL = {"vocab_size": VOCABULARY, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
_LLAMA = {
    **_SPECIAL, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
    "intermediate_size": 32, "max_position_embeddings": 64,
}  # fmt: skip
_BART = {
    **_SPECIAL, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "decoder_start_token_id": 1,
    "forced_eos_token_id": None,
}  # fmt: skip
_MAMBA = {**_SPECIAL, "hidden_size": 16, "num_hidden_layers": 2, "state_size": 4}
_T5 = {
    "d_model": 16, "d_ff": 32, "d_kv": 8, "num_layers": 2, "num_heads": 2, "vocab_size": VOCABULARY,
    "decoder_start_token_id": 0,
}  # fmt: skip
_WHISPER = {**_BART, "num_mel_bins": 8, "max_source_positions": 10, "max_target_positions": 40}
_GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32, "bos_token_id": 1, "eos_token_id": 2}

KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", {**_GPT2, "vocab_size": VOCABULARY}),
    "llama": ("LlamaConfig", "LlamaForCausalLM", _LLAMA),
    "mistral, a window of 6": ("MistralConfig", "MistralForCausalLM", {**_LLAMA, "sliding_window": 6}),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", _LLAMA),
    "mixtral": ("MixtralConfig", "MixtralForCausalLM", {**_LLAMA, "num_local_experts": 4}),
    "mamba": ("MambaConfig", "MambaForCausalLM", _MAMBA),
    "t5": ("T5Config", "T5ForConditionalGeneration", _T5),
    "bart": ("BartConfig", "BartForConditionalGeneration", {**_BART, "max_position_embeddings": 64}),
    "whisper": ("WhisperConfig", "WhisperForConditionalGeneration", _WHISPER),
}  # fmt: skip


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny products are not worth two threads, which wait for each other on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def model(kind: str) -> Any:
    """Make a tiny network with random weights, wide enough that its tokens differ."""
    config, name, values = KINDS[kind]
    with offline(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        made = getattr(transformers, name)(getattr(transformers, config)(**values)).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0.0, 0.5, generator=torch.Generator().manual_seed(parameter.numel()))
    return made


def read(module: Any) -> dict[str, Any]:
    """Give a prompt: text, with the token for padding in it, or sound."""
    rng = np.random.default_rng(0)
    if module.main_input_name == "input_ids":
        ids = rng.integers(3, VOCABULARY, (BATCH, PROMPT))
        ids[0, 4] = ids[1, -1] = 0
        return {"input_ids": ids}
    return {"input_features": rng.standard_normal((BATCH, 8, 20)).astype("float32")}


@contextmanager
def session(module: Any, **settings: Any) -> Iterator[backend.TorchSession]:
    """Open a live module."""
    ref = objects.offer(module)
    try:
        with backend.open(
            objects.load(ref, seed=0, trust=False), configure(backend.knobs, {"device": "cpu", **settings})
        ) as opened:
            yield opened
    finally:
        objects.withdraw(ref)


def generated(module: Any, tokens: int = TOKENS, **settings: Any) -> tuple[torch.Tensor, dict[int, int]]:
    """Generate step by step; the tokens, and the bytes of the cache after each."""
    with session(module, **settings) as opened:
        decoding = opened.decoding(read(module), tokens)
        steps, sizes = [], {}
        for place, step in enumerate(decoding.tokens(), 1):
            steps.append(step)
            sizes[place] = decoding.cache_bytes()
        again = list(decoding.tokens())
    assert torch.equal(torch.cat(steps, 1), torch.cat(again, 1))
    return torch.cat(steps, 1), sizes


def theirs(module: Any, tokens: int = TOKENS) -> torch.Tensor:
    """Generate by the library itself, greedily and without an end of text."""
    module.generation_config.eos_token_id = None
    inputs = {name: torch.tensor(array) for name, array in read(module).items()}
    if "input_ids" in inputs:
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    with offline():
        sequence = transformers.GenerationMixin.generate(
            module, **inputs, max_new_tokens=tokens, do_sample=False, num_beams=1
        )
    last: torch.Tensor = sequence[:, -tokens:]
    return last


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_those_of_transformers(kind: str) -> None:
    """Step by step, a batch of random weights gives what `generate` gives, and more than one token."""
    module = model(kind)
    ours, _ = generated(module)

    assert ours.shape == (BATCH, TOKENS)
    assert torch.equal(ours, theirs(module))
    assert len(set(ours.flatten().tolist())) > 1


@pytest.mark.parametrize("kind", ["llama", "t5"])
def test_tokens_with_a_static_cache_are_those_of_transformers(kind: str) -> None:
    """The kind of cache that the model's own generation asks for is used, and has its full size at once."""
    module = model(kind)
    module.generation_config.cache_implementation = "static"
    ours, sizes = generated(module)

    assert torch.equal(ours, theirs(module))
    assert len(set(sizes.values())) == 1


def test_the_end_of_a_text_ends_nothing() -> None:
    """A model that would end at once goes on to the length that was asked for."""
    module = model("llama")
    first = int(theirs(module)[0, 0])
    module.generation_config.eos_token_id = module.config.eos_token_id = first

    assert generated(module)[0].shape == (BATCH, TOKENS)


def held(keys: int, values: int, layers: int, tokens: int) -> int:
    """Bytes of float32 keys and values of the batch."""
    return 4 * BATCH * layers * tokens * (keys + values)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("gpt2", lambda n: held(16, 16, 2, PROMPT + n - 1)),
        ("llama", lambda n: held(8, 8, 2, PROMPT + n - 1)),
        ("mistral, a window of 6", lambda _: held(8, 8, 2, 6)),
        ("t5", lambda n: held(16, 16, 2, n) + held(16, 16, 2, PROMPT)),
        ("bart", lambda n: held(16, 16, 2, n) + held(16, 16, 2, PROMPT)),
        ("whisper", lambda n: held(16, 16, 2, n) + held(16, 16, 2, 10)),
        ("mamba", lambda _: 4 * BATCH * 2 * 32 * (4 + 4)),
    ],
)
def test_a_cache_has_the_bytes_of_its_tensors(kind: str, expected: Callable[[int], int]) -> None:
    """Keys and values by token, those of an encoder once, a window no further, a state as it is."""
    _, sizes = generated(model(kind))

    assert {n: sizes[n] for n in (2, 3, TOKENS)} == {n: expected(n) for n in (2, 3, TOKENS)}


def test_storages_that_several_tensors_share_count_once() -> None:
    """Views are no bytes of their own; numbers and counters are none."""
    whole = torch.zeros(4, 8)
    cache = ({"keys": whole[:2], "values": [whole[2:]]}, torch.zeros(3), 7, "text", None)

    assert torch_generate.cache_bytes(cache) == 4 * 8 * 4


def test_a_cache_is_forgotten_when_a_generation_begins() -> None:
    """The cache of one generation does not lie in memory while the next one reads its prompt."""
    module = model("llama")
    with session(module) as opened:
        decoding = opened.decoding(read(module), 3)
        list(decoding.tokens())
        assert decoding.cache_bytes() > 0
        decoding.tokens()

        assert decoding.cache_bytes() == 0


def test_the_precision_of_the_session_is_that_of_the_cache() -> None:
    """In bfloat16 the cache takes half of the bytes."""
    _, full = generated(model("llama"), 3)
    _, half = generated(model("llama"), 3, precision="bf16")

    assert 2 * half[3] == full[3]


def test_what_is_called_is_what_the_session_calls() -> None:
    """Where the module was compiled, each step calls that, and the module itself only prepares."""
    module = model("gpt2")
    calls: list[Any] = []

    class Compiled:
        _orig_mod = module

        def __call__(self, **arguments: Any) -> Any:
            calls.append(arguments)
            return module(**arguments)

    with torch.inference_mode():
        tensors = {"input_ids": torch.tensor(read(module)["input_ids"])}
        list(torch_generate.prepare_decoding(Compiled(), tensors, 4).tokens())

    assert [call["input_ids"].shape[1] for call in calls] == [PROMPT, 1, 1, 1]
    assert all(call["use_cache"] for call in calls)


def test_only_the_last_place_of_a_prompt_is_scored() -> None:
    """Reading a long prompt does not compute the scores of every place, as `generate` does not."""
    module = model("llama")
    scored: list[int] = []
    module.lm_head.register_forward_hook(lambda _m, _i, output: scored.append(output.shape[1]))
    generated(module, 2)

    assert set(scored) == {1}


# --- on a device ---------------------------------------------------------------------------------


def test_a_device_is_waited_for_after_each_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device that works on by itself, a token is there when the event after it has been reached."""
    done: list[str] = []

    class Event:
        def record(self) -> None:
            done.append("record")

        def synchronize(self) -> None:
            done.append("synchronize")

    monkeypatch.setattr(torch.cuda, "Event", Event)
    wait = torch_generate._make_waiter(torch.device("cuda"))
    wait()
    wait()

    assert done == ["record", "synchronize"] * 2


# --- what is refused -----------------------------------------------------------------------------


def refusal(module: Any, tokens: int = TOKENS, prompt: dict[str, Any] | None = None) -> str:
    """Give the sentence."""
    with session(module) as opened, pytest.raises(RequestError) as refused:
        opened.decoding(read(module) if prompt is None else prompt, tokens)
    assert is_one_sentence(str(refused.value))
    return str(refused.value)


def test_a_model_without_a_head_is_refused_with_the_class_to_name() -> None:
    """The bare model of an architecture that can generate names the class that does."""
    for kind, name in (("gpt2", "GPT2Model"), ("t5", "T5Model"), ("whisper", "WhisperModel")):
        config, head, values = KINDS[kind]
        bare = getattr(transformers, name)(getattr(transformers, config)(**values))
        sentence = refusal(bare)
        assert sentence.startswith(f"{name} cannot generate tokens")
        assert f'"architectures": ["{head}"]' in sentence


@pytest.mark.parametrize(
    ("name", "config", "values"),
    [
        ("BertForSequenceClassification", "BertConfig", {"hidden_size": 16, "num_hidden_layers": 1}),
        ("ViTForImageClassification", "ViTConfig", {"hidden_size": 16, "num_hidden_layers": 1}),
    ],
)
def test_a_model_that_cannot_generate_is_refused(name: str, config: str, values: dict[str, Any]) -> None:
    """An encoder, and one that sees pictures, are no language models."""
    small = {**values, "num_attention_heads": 2, "intermediate_size": 32}
    module = getattr(transformers, name)(getattr(transformers, config)(**small))

    assert refusal(module, prompt={}).startswith(f"{name} cannot generate tokens: no model of this kind")


def test_a_module_of_no_library_is_refused() -> None:
    """A plain module of torch has nothing to generate with."""
    assert "not a causal or seq2seq model" in refusal(torch.nn.Linear(2, 2), prompt={})


def test_more_tokens_than_positions_are_refused() -> None:
    """The last token is chosen and never read, so a prompt and all but one of its tokens must fit."""
    module = model("gpt2")
    with session(module) as opened:
        opened.decoding(read(module), 32 - PROMPT + 1)

    assert "has 32 positions" in refusal(module, 32 - PROMPT + 2)


def test_positions_of_a_decoder_are_its_own() -> None:
    """An encoder-decoder generates as many tokens as its decoder has positions; relative ones have no end."""
    module = model("whisper")
    with session(module) as opened:
        opened.decoding(read(module), 40)

    assert "has 40 positions" in refusal(module, 41)
    with session(model("t5")) as opened:
        opened.decoding(read(model("t5")), 100_000)


def test_what_the_model_reads_must_be_there() -> None:
    """Without its main input a prompt is none."""
    assert "generates from 'input_ids'" in refusal(model("gpt2"), prompt={"x": np.zeros((1, 2))})


def test_an_old_release_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that cannot hand over its preparations says which one can."""
    module = model("gpt2")  # transformers puts another module in its own place when a class is imported
    monkeypatch.setattr(sys.modules["transformers"], "__version__", "4.44.2")

    assert "4.57" in refusal(module)


def test_places_of_tokens_are_told_to_releases_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before transformers 5 the inputs of a step were cut by the places of its tokens."""
    positions: list[Any] = []

    class Old:
        def prepare_inputs_for_generation(self, ids: torch.Tensor, **arguments: Any) -> dict[str, Any]:
            positions.append(arguments["cache_position"].tolist())
            return {"input_ids": ids}

    monkeypatch.setattr(torch_generate, "_takes_sequence_length", lambda: False)
    arguments: dict[str, Any] = {}
    torch_generate._step_inputs(Old(), torch.zeros(2, 4, dtype=torch.int64), arguments, first=True)
    torch_generate._step_inputs(Old(), torch.zeros(2, 5, dtype=torch.int64), arguments, first=False)

    assert positions == [[0, 1, 2, 3]] * 2  # `generate` itself moves them on between two steps


def test_a_session_can_generate() -> None:
    """The capability is there for every module; whether this one can is told by asking it."""
    with session(torch.nn.Linear(2, 2)) as opened:
        assert isinstance(opened, CanGenerate)


# --- as a whole ----------------------------------------------------------------------------------


def test_a_run_measures_generation(tmp_path: Path) -> None:
    """From a configuration to times at each length, and to the one number that a script asks for."""
    config, name, values = KINDS["llama"]
    with offline():
        getattr(transformers, config)(**values, architectures=[name]).save_pretrained(tmp_path)
    job = Job(
        model=ModelRef(scheme="hf-config", locator=str(tmp_path)),
        backend="torch",
        config=configure(backend.knobs, {"device": "cpu", "threads": 1, "batch_size": 2}),
        probes=("generate",),
        plan=Plan(max_time=2.0, min_time=0.01, min_runs=5, precision=0.5),
        observation=ProbeOptions(prompts=(4, 40), generated=(3,)),
    )
    result = run(job)

    assert not result.failures
    for scope in ("prompt=4,generate=3", "prompt=40,generate=3"):
        assert (result[f"time_to_first_token.p50.raw@{scope}"] or 0) > 0
        assert (result[f"token_rate@{scope}"] or 0) > 0
    assert result["kv_cache_per_token@measured"] == held(8, 8, 2, 1) / BATCH
    assert result["kv_cache_bytes@prompt=40,generate=3"] == 2 * held(8, 8, 2, 42) / BATCH


@pytest.mark.slow
def test_a_run_refuses_what_cannot_generate(tmp_path: Path) -> None:
    """Nothing is measured of an encoder."""
    with offline():
        transformers.BertConfig(num_hidden_layers=1, vocab_size=50).save_pretrained(tmp_path)
    job = Job(
        model=ModelRef(scheme="hf-config", locator=str(tmp_path)),
        backend="torch",
        config=configure(backend.knobs, {"device": "cpu", "threads": 1}),
        probes=("generate",),
        plan=Plan(),
    )
    with pytest.raises(RequestError, match="BertModel cannot generate tokens"):
        run(job)
