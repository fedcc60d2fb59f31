"""Train a small language model, and a smaller one to draft for it, on the docstrings of Python's library.

Usage: python examples/language_model/train.py FOLDER [--minutes 6]

Writes FOLDER/model and FOLDER/draft (config.json, model.safetensors, tokenizer.json), and of each a GGUF
file beside it: model.gguf, draft.gguf, and model-q8_0.gguf of eight bits a weight. Both models have the same
tokenizer. It needs torch, transformers, tokenizers and gguf.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import math
import sysconfig
import time
from pathlib import Path
from typing import TYPE_CHECKING

import gguf
import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

if TYPE_CHECKING:
    from collections.abc import Iterator

BEGIN, END = "<|begin|>", "<|end|>"
VOCABULARY = 2048
CONTEXT = 2048
"""Positions that the models can have; they learn from `WINDOW` at a time."""
WINDOW, BATCH = 128, 8
SIZES = {
    "model": {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4},
    "draft": {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 1, "num_attention_heads": 2},
}
SHARES = {"model": 0.8, "draft": 0.2}
"""Of the time of training."""
TEMPLATE = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"
RATE, LAST_RATE, WARM_UP = 3e-3, 0.05, 0.05
"""Learning rate, the part of it that is left in the end, and the part of training in which it rises."""


def docstrings() -> list[str]:
    """Read the docstrings of modules, classes and functions of the standard library; each is a document."""
    root = Path(sysconfig.get_path("stdlib"))
    texts: dict[str, None] = {}
    for path in sorted(root.rglob("*.py")):
        if {"site-packages", "test", "tests", "idle_test", "lib2to3"} & set(path.relative_to(root).parts):
            continue
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = inspect.cleandoc(ast.get_docstring(node, clean=False) or "")
                if len(text.split()) > 3:
                    texts[text] = None
    return list(texts)


def learn_tokenizer(texts: list[str]) -> Tokenizer:
    """Learn a byte-level BPE, split as GPT-2's, that begins each text with `BEGIN`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[BEGIN, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A", special_tokens=[(BEGIN, tokenizer.token_to_id(BEGIN))]
    )
    return tokenizer


def make(name: str, tokenizer: Tokenizer) -> LlamaForCausalLM:
    """Make a model of random weights."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=tokenizer.get_vocab_size(),
            num_key_value_heads=SIZES[name]["num_attention_heads"] // 2,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
            bos_token_id=tokenizer.token_to_id(BEGIN),
            eos_token_id=tokenizer.token_to_id(END),
            **SIZES[name],
        )
    )


def batches(texts: list[str], tokenizer: Tokenizer) -> Iterator[torch.Tensor]:
    """Yield windows of documents in random order, each document from its begin to its end token."""
    end = tokenizer.token_to_id(END)
    documents = [[*encoding.ids, end] for encoding in tokenizer.encode_batch(texts)]
    generator = np.random.default_rng(0)
    while True:
        order = generator.permutation(len(documents))
        stream = torch.tensor([token for number in order for token in documents[number]])
        windows = stream[: len(stream) // WINDOW * WINDOW].view(-1, WINDOW)
        windows = windows[torch.from_numpy(generator.permutation(len(windows)))]
        yield from torch.split(windows, BATCH)


def train(model: LlamaForCausalLM, data: Iterator[torch.Tensor], seconds: float) -> None:
    """Fit the model for a time, at a rate that falls with it, and print each half minute how far it is."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.1)
    begin = shown = time.perf_counter()
    tokens, smooth = 0, math.nan
    model.train()
    while (spent := time.perf_counter() - begin) < seconds:
        part = spent / seconds
        scale = min(part / WARM_UP, LAST_RATE + (1 - LAST_RATE) * (1 + math.cos(math.pi * part)) / 2)
        for group in optimizer.param_groups:
            group["lr"] = RATE * scale
        batch = next(data)
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        value = loss.item()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        tokens += batch.numel()
        smooth = value if math.isnan(smooth) else 0.98 * smooth + 0.02 * value
        if time.perf_counter() - shown > 30:
            shown = time.perf_counter()
            print(f"  {spent:4.0f} s: {tokens:,} tokens, loss {smooth:.2f}", flush=True)
    model.eval()
    print(f"  {tokens:,} tokens, loss {smooth:.2f}")


def write_all(folder: Path, name: str, model: LlamaForCausalLM, tokenizer: Tokenizer) -> None:
    """Write a model as Transformers reads it, as llama.cpp does, and the tokenizer beside the latter."""
    whole = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=BEGIN, eos_token=END)
    whole.chat_template = TEMPLATE
    whole.save_pretrained(folder / name)
    model.half().save_pretrained(folder / name)
    model.float()
    tokenizer.save(str(folder / "tokenizer.json"))
    write_gguf(folder / f"{name}.gguf", model, tokenizer, "F16")
    write_gguf(folder / f"{name}-q8_0.gguf", model, tokenizer, "Q8_0")


def write_gguf(path: Path, model: LlamaForCausalLM, tokenizer: Tokenizer, kind: str) -> None:
    """Write a model and its tokenizer as llama.cpp reads them; `kind` is the type of matrices: F16, Q8_0."""
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(path.stem)
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{kind}"])
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    _write_tokenizer(writer, tokenizer)
    for name, tensor in _tensors(model):
        if tensor.ndim == 1:
            writer.add_tensor(name, tensor)
        elif kind == "F16":
            writer.add_tensor(name, tensor.astype(np.float16))
        else:
            quantized = gguf.GGMLQuantizationType[kind]
            writer.add_tensor(name, gguf.quants.quantize(tensor, quantized), raw_dtype=quantized)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_tokenizer(writer: gguf.GGUFWriter, tokenizer: Tokenizer) -> None:
    content = json.loads(tokenizer.to_str())
    vocabulary = tokenizer.get_vocab()
    names = sorted(vocabulary, key=vocabulary.__getitem__)
    special = {BEGIN, END}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(names)
    writer.add_token_types(
        [gguf.TokenType.CONTROL if name in special else gguf.TokenType.NORMAL for name in names]
    )
    writer.add_token_merges([" ".join(pair) for pair in content["model"]["merges"]])
    writer.add_bos_token_id(vocabulary[BEGIN])
    writer.add_eos_token_id(vocabulary[END])
    writer.add_add_bos_token(True)
    writer.add_chat_template(TEMPLATE)


def _tensors(model: LlamaForCausalLM) -> Iterator[tuple[str, np.ndarray]]:
    """Yield each tensor under its name in GGUF, those of queries and keys in the order of llama.cpp."""
    config = model.config
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, parameter in model.named_parameters():
        tensor = parameter.detach().float().numpy()
        if count := heads.get(name.split(".")[-2]):  # llama.cpp turns neighbours, Transformers two halves
            rows, columns = tensor.shape
            tensor = (
                tensor.reshape(count, 2, rows // count // 2, columns).swapaxes(1, 2).reshape(rows, columns)
            )
        short = names.get_name(name, try_suffixes=(".weight",))
        assert short is not None
        yield short, np.ascontiguousarray(tensor)


def continue_text(model: LlamaForCausalLM, tokenizer: Tokenizer, prompt: str) -> str:
    """Let a model continue a text, by its likeliest words and others, until its end or for 80 tokens."""
    ids = torch.tensor([tokenizer.encode(prompt).ids])
    answer = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=80, do_sample=True, temperature=0.7,
        pad_token_id=tokenizer.token_to_id(END),
    )  # fmt: skip
    return tokenizer.decode(answer[0].tolist(), skip_special_tokens=False)


def main() -> None:
    """Train both models, write them, and show what the larger one writes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=6.0, help="how long to train both, in all")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    texts = docstrings()
    tokenizer = learn_tokenizer(texts)
    data = batches(texts, tokenizer)
    print(f"{len(texts):,} docstrings of {sum(map(len, texts)):,} characters")
    for name, share in SHARES.items():
        model = make(name, tokenizer)
        print(f"{name}: {model.num_parameters():,} parameters")
        train(model, data, 60 * options.minutes * share)
        write_all(options.folder, name, model, tokenizer)
        if name == "model":
            for prompt in ("Return the", "Open a file"):
                print(f"  {continue_text(model, tokenizer, prompt)!r}")


if __name__ == "__main__":
    main()
