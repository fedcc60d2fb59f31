"""Known architectures in their published sizes, each with what it costs as tests/zoo/truths.py derives it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from tests.zoo import truths
from tests.zoo.resnet import ResNet
from tests.zoo.truths import Cost
from tests.zoo.unet import Unet
from torch import nn

from modeldyno.models.loaders.transformers_model import offline

Inputs = dict[str, tuple[tuple[int, ...], torch.dtype]]
Built = tuple[nn.Module, Inputs]
EAGER = ("eager",)
BOTH = ("eager", "sdpa")


@dataclass(frozen=True, kw_only=True)
class Case:
    """An architecture and its truth. `build` takes an attention implementation and a dtype."""

    name: str
    build: Callable[[str, torch.dtype], Built]
    cost: Cost
    tied: bool = False
    attentions: tuple[str, ...] = EAGER
    # The dtypes in which a call on the meta device works.
    meta: tuple[torch.dtype, ...] = (torch.float32, torch.bfloat16)
    # Whether a fused kernel can take all attention of a training step.
    fuses: bool = True

    @property
    def macs(self) -> int:
        """Give the multiply-accumulates of one forward call."""
        return self.cost.forward

    @property
    def training(self) -> int:
        """Give those of a forward and a backward call, where attention keeps its scores."""
        return self.cost.training()

    @property
    def training_fused(self) -> int | None:
        """Give those where fused attention computes its scores again, or None where it cannot."""
        return self.cost.training(fused=True) if "sdpa" in self.attentions and self.fuses else None

    @property
    def parameters(self) -> int:
        """Give the parameters, a shared one once."""
        return self.cost.parameters


def resnet(name: str, sizes: truths.ResNet) -> Case:
    """Give a ResNet as a plain module."""

    def build(_: str, dtype: torch.dtype) -> Built:
        return ResNet(sizes).to(dtype), {"pixels": ((sizes.batch, 3, sizes.height, sizes.width), dtype)}

    return Case(name=name, build=build, cost=sizes.cost())


def vit(name: str, sizes: truths.Vit) -> Case:
    """Give ViT with a classifier."""

    def build(attention: str, dtype: torch.dtype) -> Built:
        values = {
            "hidden_size": sizes.hidden,
            "num_hidden_layers": sizes.layers,
            "num_attention_heads": sizes.heads,
            "intermediate_size": sizes.intermediate,
            "patch_size": sizes.patch,
            "image_size": sizes.size,
            "num_labels": sizes.classes,
        }
        pixels = ((sizes.batch, 3, sizes.size, sizes.size), dtype)
        return _transformer("ViT", "ForImageClassification", values, attention, dtype), {
            "pixel_values": pixels
        }

    return Case(name=name, build=build, cost=sizes.cost(), attentions=BOTH)


def convnext(name: str, sizes: truths.ConvNext) -> Case:
    """Give ConvNeXt with a classifier."""

    def build(attention: str, dtype: torch.dtype) -> Built:
        values = {
            "depths": list(sizes.depths),
            "hidden_sizes": list(sizes.widths),
            "num_stages": len(sizes.depths),
            "num_labels": sizes.classes,
        }
        model = _transformer("ConvNext", "ForImageClassification", values, attention, dtype)
        return model, {"pixel_values": ((sizes.batch, 3, sizes.size, sizes.size), dtype)}

    return Case(name=name, build=build, cost=sizes.cost())


def bert(name: str, sizes: truths.Bert) -> Case:
    """Give BERT without a head."""

    def build(attention: str, dtype: torch.dtype) -> Built:
        values = {
            "hidden_size": sizes.hidden,
            "num_hidden_layers": sizes.layers,
            "num_attention_heads": sizes.heads,
            "intermediate_size": sizes.intermediate,
            "vocab_size": sizes.vocab,
            "max_position_embeddings": sizes.positions,
        }
        options = {"add_pooling_layer": sizes.pooler}
        model = _transformer("Bert", "Model", values, attention, dtype, **options)
        return model, {"input_ids": _ids(sizes.batch, sizes.seq)}

    return Case(name=name, build=build, cost=sizes.cost(), attentions=BOTH)


def gpt2(name: str, sizes: truths.Gpt2) -> Case:
    """Give GPT-2 with its language head."""

    def build(attention: str, dtype: torch.dtype) -> Built:
        values = {
            "n_embd": sizes.hidden,
            "n_layer": sizes.layers,
            "n_head": sizes.heads,
            "vocab_size": sizes.vocab,
            "n_positions": sizes.positions,
        }
        model = _transformer("GPT2", "LMHeadModel", values, attention, dtype)
        return model, {"input_ids": _ids(sizes.batch, sizes.seq)}

    return Case(name=name, build=build, cost=sizes.cost(), tied=True, attentions=BOTH)


def llama(name: str, sizes: truths.Llama) -> Case:
    """Give Llama with its language head."""

    def build(attention: str, dtype: torch.dtype) -> Built:
        model = _transformer("Llama", "ForCausalLM", _llama_like(sizes), attention, dtype)
        return model, {"input_ids": _ids(sizes.batch, sizes.seq)}

    return Case(name=name, build=build, cost=sizes.cost(), attentions=BOTH)


def mixtral(name: str, sizes: truths.Mixtral, experts: str | None = None) -> Case:
    """Give Mixtral with its language head; by default transformers chooses how the experts are computed."""

    def build(attention: str, dtype: torch.dtype) -> Built:
        values = {
            **_llama_like(sizes),
            "num_local_experts": sizes.experts,
            "num_experts_per_tok": sizes.chosen,
        }
        options = {} if experts is None else {"experts_implementation": experts}
        model = _transformer("Mixtral", "ForCausalLM", values, attention, dtype, **options)
        return model, {"input_ids": _ids(sizes.batch, sizes.seq)}

    # Grouped products know no other dtype on the meta device, and the loop over experts looks at its data.
    meta = {"batched_mm": Case.meta, "eager": ()}.get(experts or "", (torch.bfloat16,))
    return Case(name=name, build=build, cost=sizes.cost(), attentions=BOTH, meta=meta)


def _llama_like(sizes: truths.Llama) -> dict[str, Any]:
    return {
        "hidden_size": sizes.hidden,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "intermediate_size": sizes.intermediate,
        "vocab_size": sizes.vocab,
        "tie_word_embeddings": False,
    }


def t5(name: str, sizes: truths.T5) -> Case:
    """Give T5 with its language head."""

    def build(attention: str, dtype: torch.dtype) -> Built:
        values = {
            "d_model": sizes.hidden,
            "d_kv": sizes.head_width,
            "d_ff": sizes.intermediate,
            "num_layers": sizes.layers,
            "num_decoder_layers": sizes.layers,
            "num_heads": sizes.heads,
            "vocab_size": sizes.vocab,
            "relative_attention_num_buckets": sizes.buckets,
            "decoder_start_token_id": 0,
        }
        model = _transformer("T5", "ForConditionalGeneration", values, attention, dtype)
        ids, target = _ids(sizes.batch, sizes.seq), _ids(sizes.batch, sizes.target)
        return model, {"input_ids": ids, "decoder_input_ids": target}

    # Its scores take a bias that is learned, which not every fused kernel can give a gradient.
    return Case(name=name, build=build, cost=sizes.cost(), tied=True, attentions=BOTH, fuses=False)


def whisper(name: str, sizes: truths.Whisper) -> Case:
    """Give Whisper with its language head."""

    def build(attention: str, dtype: torch.dtype) -> Built:
        values = {
            "d_model": sizes.hidden,
            "encoder_layers": sizes.layers,
            "decoder_layers": sizes.layers,
            "encoder_attention_heads": sizes.heads,
            "decoder_attention_heads": sizes.heads,
            "encoder_ffn_dim": sizes.intermediate,
            "decoder_ffn_dim": sizes.intermediate,
            "vocab_size": sizes.vocab,
            "num_mel_bins": sizes.bins,
            "max_source_positions": sizes.seq,
            "max_target_positions": sizes.positions,
            **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"), 1),
        }
        model = _transformer("Whisper", "ForConditionalGeneration", values, attention, dtype)
        features = ((sizes.batch, sizes.bins, sizes.frames), dtype)
        return model, {"input_features": features, "decoder_input_ids": _ids(sizes.batch, sizes.target)}

    return Case(name=name, build=build, cost=sizes.cost(), tied=True, attentions=BOTH)


def mamba(name: str, sizes: truths.Mamba) -> Case:
    """Give Mamba with its language head."""

    def build(attention: str, dtype: torch.dtype) -> Built:
        values = {
            "hidden_size": sizes.hidden,
            "num_hidden_layers": sizes.layers,
            "state_size": sizes.state,
            "conv_kernel": sizes.kernel,
            "expand": sizes.expand,
            "time_step_rank": sizes.rank,
            "vocab_size": sizes.vocab,
        }
        model = _transformer("Mamba", "ForCausalLM", values, attention, dtype)
        return model, {"input_ids": _ids(sizes.batch, sizes.seq)}

    return Case(name=name, build=build, cost=sizes.cost(), tied=True)


def unet(name: str, sizes: truths.Unet) -> Case:
    """Give the denoiser of tests/zoo/unet.py."""

    def build(attention: str, dtype: torch.dtype) -> Built:
        model = Unet(sizes, fused=attention == "sdpa").to(dtype)
        return model, {
            "latents": ((sizes.batch, sizes.latent, sizes.size, sizes.size), dtype),
            "timesteps": ((sizes.batch,), torch.int64),
            "context": ((sizes.batch, sizes.words, sizes.context), dtype),
        }

    return Case(name=name, build=build, cost=sizes.cost(), attentions=BOTH)


def detr(name: str, sizes: truths.Detr) -> Case:
    """Give DETR for object detection on a ResNet of transformers."""

    def build(attention: str, dtype: torch.dtype) -> Built:
        net = sizes.backbone
        with offline():
            import transformers

            backbone = transformers.ResNetConfig(
                embedding_size=net.stem,
                hidden_sizes=[4 * net.stem * 2**stage for stage in range(len(net.depths))],
                depths=list(net.depths),
                out_features=[f"stage{len(net.depths)}"],
            )
        values = {
            "use_timm_backbone": False,
            "backbone_config": backbone,
            "d_model": sizes.hidden,
            "encoder_layers": sizes.layers,
            "decoder_layers": sizes.layers,
            "encoder_attention_heads": sizes.heads,
            "decoder_attention_heads": sizes.heads,
            "encoder_ffn_dim": sizes.intermediate,
            "decoder_ffn_dim": sizes.intermediate,
            "num_queries": sizes.queries,
            "num_labels": sizes.labels,
        }
        parts = {"": attention, "backbone_config": "eager"}
        model = _transformer("Detr", "ForObjectDetection", values, parts, dtype)
        return model, {"pixel_values": ((net.batch, 3, net.height, net.width), dtype)}

    # It looks at its own mask on the way.
    return Case(name=name, build=build, cost=sizes.cost(), attentions=BOTH, meta=())


def _transformer(
    kind: str,
    head: str,
    values: dict[str, Any],
    attention: str | dict[str, str],
    dtype: torch.dtype,
    **options: Any,
) -> nn.Module:
    with offline():
        import transformers

        config = getattr(transformers, f"{kind}Config")(**values)
        architecture = getattr(transformers, f"{kind}{head}")
        model: nn.Module = architecture._from_config(
            config, attn_implementation=attention, dtype=dtype, **options
        )
        return model.eval()


def _ids(batch: int, seq: int) -> tuple[tuple[int, ...], torch.dtype]:
    return (batch, seq), torch.int64


MODELS: dict[str, Case] = {
    case.name: case
    for case in (
        resnet("resnet18_cifar", truths.RESNET18_CIFAR),
        resnet("resnet18", truths.RESNET18),
        resnet("resnet50", truths.RESNET50),
        vit("vit_b16", truths.Vit()),
        convnext("convnext_t", truths.ConvNext()),
        bert("bert_base_128", truths.Bert()),
        gpt2("gpt2_512", truths.Gpt2()),
        llama("llama3_8b", truths.Llama()),
        t5("t5_small", truths.T5()),
        whisper("whisper_tiny", truths.Whisper()),
        mixtral("mixtral", truths.Mixtral()),
        mixtral("mixtral_batched", truths.Mixtral(), "batched_mm"),
        mixtral("mixtral_eager", truths.Mixtral(), "eager"),
        mamba("mamba_130m", truths.Mamba()),
        unet("unet", truths.Unet()),
        detr("detr", truths.Detr()),
    )
}

_NET = replace(truths.RESNET50, depths=(1, 1, 1, 1), stem=8, height=96, width=130, batch=2)
_LLAMA = truths.Llama(hidden=32, layers=2, heads=4, kv_heads=2, intermediate=48, vocab=50, seq=12, batch=2)
_MIXTRAL = truths.Mixtral(
    hidden=32, layers=2, heads=4, kv_heads=2, intermediate=48, vocab=50, seq=12, batch=2, experts=4
)

# The same closed forms in sizes that a CPU computes at once, with a batch of two.
SMALL: dict[str, Case] = {
    case.name: case
    for case in (
        resnet("resnet18_cifar", replace(truths.RESNET18_CIFAR, stem=8, batch=2)),
        resnet("resnet18", replace(truths.RESNET18, stem=8, height=63, width=50, batch=2)),
        resnet("resnet50", replace(_NET, classes=7)),
        vit("vit_b16", truths.Vit(hidden=32, layers=2, heads=4, intermediate=48, patch=8, size=32, batch=2)),
        convnext("convnext_t", truths.ConvNext(depths=(1, 2), widths=(8, 16), classes=5, size=32, batch=2)),
        bert("bert_base_128", truths.Bert(hidden=32, layers=2, heads=4, intermediate=48, vocab=50, batch=2)),
        gpt2("gpt2_512", truths.Gpt2(hidden=32, layers=2, heads=4, vocab=50, positions=16, seq=12, batch=2)),
        llama("llama3_8b", _LLAMA),
        t5(
            "t5_small",
            truths.T5(
                hidden=32,
                head_width=4,
                heads=4,
                intermediate=48,
                layers=2,
                vocab=50,
                seq=12,
                target=7,
                batch=2,
            ),
        ),
        whisper(
            "whisper_tiny",
            truths.Whisper(
                hidden=32,
                heads=4,
                layers=2,
                intermediate=48,
                vocab=50,
                bins=8,
                frames=20,
                positions=9,
                target=7,
                batch=2,
            ),
        ),
        mixtral("mixtral", _MIXTRAL),
        mixtral("mixtral_batched", _MIXTRAL, "batched_mm"),
        mixtral("mixtral_eager", _MIXTRAL, "eager"),
        mamba("mamba_130m", truths.Mamba(hidden=16, layers=2, state=4, rank=3, vocab=50, seq=9, batch=2)),
        unet(
            "unet",
            truths.Unet(
                widths=(16, 32), attends=(False, True), blocks=1, heads=2, context=8, words=5, size=8, batch=2
            ),
        ),
        detr(
            "detr",
            truths.Detr(backbone=_NET, hidden=32, heads=4, layers=2, intermediate=48, queries=5, labels=6),
        ),
    )
}
