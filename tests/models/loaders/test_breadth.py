from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from modeldyno.base.job.input_spec import BATCH, InputSpec
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.job.static_options import Mode
from modeldyno.models import random_arrays
from modeldyno.models.flops.registry import formulas
from modeldyno.models.interface import Tracing
from modeldyno.models.loaders import hf_config
from modeldyno.models.loaders.torch_tracing import graph as torch_tracing_graph
from modeldyno.models.loaders.transformers_model import offline
from modeldyno.models.static.totals import AnalysedGraph
from modeldyno.models.torch_signature import Forward

ROOT = Path(__file__).parents[3]
LENGTH = 16

_TEXT = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
}
_GROUPED = {**_TEXT, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_IMAGE = {**_TEXT, "image_size": 32, "patch_size": 8}
_SEQ2SEQ = {
    "vocab_size": 99,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 40,
}
_SPEECH = {
    **_TEXT,
    "conv_dim": (16, 16),
    "conv_kernel": (10, 3),
    "conv_stride": (5, 4),
    "num_feat_extract_layers": 2,
}
_SPEECH |= {"num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2}
_RESNET = {
    "model_type": "resnet",
    "depths": [1, 1, 1, 1],
    "hidden_sizes": [8, 16, 24, 32],
    "embedding_size": 8,
}
_RESNET |= {"layer_type": "basic", "out_features": ["stage2", "stage3", "stage4"]}

CLASSES: dict[str, tuple[str, dict[str, Any]]] = {
    # decoders
    "LlamaForCausalLM": ("llama", _GROUPED),
    "GPT2LMHeadModel": (
        "gpt2",
        {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    ),
    "BloomForCausalLM": ("bloom", {"vocab_size": 99, "hidden_size": 32, "n_layer": 2, "n_head": 4}),
    # experts
    "MixtralForCausalLM": ("mixtral", {**_GROUPED, "num_local_experts": 4}),
    "Qwen3MoeForCausalLM": (
        "qwen3_moe",
        {**_GROUPED, "head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
    ),
    # state-space models and recurrences
    "MambaForCausalLM": (
        "mamba",
        {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4},
    ),
    "Mamba2ForCausalLM": (
        "mamba2",
        {
            "vocab_size": 99,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "state_size": 4,
            "num_heads": 8,
            "head_dim": 8,
        }
        | {"n_groups": 1, "chunk_size": 8},
    ),
    "RwkvForCausalLM": ("rwkv", {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2}),
    # encoders
    "BertForMaskedLM": ("bert", _TEXT),
    "DebertaV2ForSequenceClassification": ("deberta-v2", {**_TEXT, "relative_attention": True}),
    "LongformerForMaskedLM": ("longformer", {**_TEXT, "attention_window": 8, "max_position_embeddings": 160}),
    "BigBirdForMaskedLM": ("big_bird", {**_TEXT, "attention_type": "original_full"}),
    # encoders and decoders
    "T5ForConditionalGeneration": (
        "t5",
        {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 40, "num_layers": 2, "num_heads": 4},
    ),
    "BartForConditionalGeneration": ("bart", {**_SEQ2SEQ, "max_position_embeddings": 64}),
    # pictures and films
    "ViTForImageClassification": ("vit", _IMAGE),
    "SwinForImageClassification": (
        "swin",
        {
            "image_size": 32,
            "patch_size": 4,
            "embed_dim": 16,
            "depths": [2, 2],
            "num_heads": [2, 4],
            "window_size": 4,
        },
    ),
    "ConvNextForImageClassification": ("convnext", {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}),
    "SegformerForSemanticSegmentation": (
        "segformer",
        {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 3, 4]}
        | {"decoder_hidden_size": 16, "image_size": 64},
    ),
    "VideoMAEForVideoClassification": ("videomae", {**_IMAGE, "num_frames": 4}),
    # detection and depth
    "DetrForObjectDetection": (
        "detr",
        {
            **_SEQ2SEQ,
            "num_queries": 5,
            "backbone_config": _RESNET,
            "use_timm_backbone": False,
            "backbone": None,
        },
    ),
    "YolosForObjectDetection": ("yolos", {**_IMAGE, "image_size": [32, 32], "num_detection_tokens": 5}),
    "DPTForDepthEstimation": (
        "dpt",
        {**_IMAGE, "num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3], "is_hybrid": False}
        | {"neck_hidden_sizes": [8, 16, 24, 32], "fusion_hidden_size": 16},
    ),
    # sound
    "WhisperForConditionalGeneration": (
        "whisper",
        {
            **_SEQ2SEQ,
            "num_mel_bins": 8,
            "max_source_positions": 20,
            "max_target_positions": 20,
            "pad_token_id": 0,
        }
        | {"bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1},
    ),
    "Wav2Vec2ForCTC": ("wav2vec2", _SPEECH),
    "EncodecModel": (
        "encodec",
        {"num_filters": 4, "hidden_size": 16, "codebook_size": 16, "codebook_dim": 16},
    ),
    "FastSpeech2ConformerModel": (
        "fastspeech2_conformer",
        {"hidden_size": 32, "encoder_layers": 1, "decoder_layers": 1, "vocab_size": 50},
    ),
    "VitsModel": (
        "vits",
        {
            "hidden_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "ffn_dim": 40,
            "flow_size": 32,
            "spectrogram_bins": 33,
            "upsample_initial_channel": 32,
            "prior_encoder_num_flows": 1,
            "prior_encoder_num_wavenet_layers": 1,
        },
    ),
    # series
    "PatchTSTForPrediction": ("patchtst", {"num_input_channels": 2, "context_length": 32, "d_model": 16}),
    # several at once
    "CLIPModel": ("clip", {"text_config": _TEXT, "vision_config": _IMAGE, "projection_dim": 8}),
    "LlavaForConditionalGeneration": (
        "llava",
        {"text_config": {**_GROUPED, "model_type": "llama"}, "image_token_index": 98}
        | {"vision_config": {**_IMAGE, "model_type": "clip_vision_model"}},
    ),
}
"""Model class to the type of its configuration, and a small one."""


OFTEN = {
    "MixtralForCausalLM", "MambaForCausalLM", "BertForMaskedLM", "T5ForConditionalGeneration",
    "ViTForImageClassification", "PatchTSTForPrediction", "CLIPModel",
}  # fmt: skip
"""Of the main kinds one; the others are behind `slow`."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in OFTEN else pytest.mark.slow) for name in CLASSES]
)
def test_each_class_is_analysed_on_its_declared_inputs(name: str, tmp_path: Path) -> None:
    """The analysis without weights counts what torch's own counter counts in the real call."""
    kind, values = CLASSES[name]
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": kind, "architectures": [name], **values}))
    ref = ModelRef(scheme="hf-config", locator=str(file))
    looked = hf_config.look(ref, seed=0, trust=False)
    inputs = tuple(map(fixed, looked.inputs))

    assert looked.graph is not None
    graph = looked.graph(Tracing(inputs=inputs, mode=Mode.INFERENCE, optimizer="none"))
    result = AnalysedGraph.of(graph, formulas())
    common = {str(operator) for operator in flop_registry}
    macs = sum(c.macs for op, c in zip(graph.ops, result.counts, strict=True) if op.kind in common)

    assert result.totals().coverage > 0.95
    settled = [a for a in graph.assumptions if "balanced router" not in a]
    assert settled or macs == counted(hf_config.load(ref, seed=0, trust=False).value, inputs)


class Stretched(torch.nn.Module):
    """Repeats frames as often as it computes, as speech synthesis does."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Agree with itself on the length."""
        often = x.sum(1).round().long()
        made = x.new_zeros(int(often.sum()), x.shape[1])
        made[:] = torch.repeat_interleave(x, often, dim=0)
        return made


class Counted(torch.nn.Module):
    """Repeats frames as often as it detects something in them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Count by flags, not by rounding."""
        return torch.repeat_interleave(x, (x > 0).sum(1), dim=0)


@pytest.mark.parametrize("kind", [Stretched, Counted])
def test_repeats_that_are_not_computed_are_one_each(kind: type[torch.nn.Module]) -> None:
    """Where a repeat count is unknown, it is taken as one, and the assumption is reported."""
    module, stage = torch_tracing_graph.build_on_meta(kind)
    inputs = (InputSpec(name="x", shape=(5, 4), dtype="float32"),)

    graph = torch_tracing_graph.trace_module(
        module, stage, Tracing(inputs=inputs, mode=Mode.INFERENCE, optimizer="none")
    )

    assert [storage.bytes for storage in graph.storages if storage.output] == [5 * 4 * 4]
    assert graph.assumptions


def fixed(spec: InputSpec) -> InputSpec:
    """Replace the names of dimensions by numbers."""
    shape = tuple(d if isinstance(d, int) else 1 if d == BATCH else LENGTH for d in spec.shape or ())
    return InputSpec(name=spec.name, shape=shape, dtype=spec.dtype, low=spec.low, high=spec.high)


def counted(module: torch.nn.Module, inputs: tuple[InputSpec, ...]) -> float:
    """Return the count of torch's own counter in a real call."""
    feed = {spec.name: torch.from_numpy(random_arrays.draw_array(spec, (0,))) for spec in inputs}
    args, kwargs = Forward.of(module).arguments(feed)
    with offline(), torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(*args, **kwargs)
    return float(counter.get_total_flops()) / 2


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_nearly_all_classes_are_analysed() -> None:
    """Of the transformers classes that run on their own, 97 % are analysed, each within 10 seconds."""
    command = [sys.executable, "bench/breadth.py", "--heads", "one"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    print(ended.stdout[-3000:])
    assert ended.returncode == 0, ended.stdout[-3000:]
