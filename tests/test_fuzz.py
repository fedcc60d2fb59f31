"""Damaged model files of every format are analysed or refused, quickly, in little memory, in a sentence.

100 mutations a format by default; `make fuzz` makes 10,000 of each (MODELDYNO_FUZZ).
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")
pytest.importorskip("transformers")

import onnx
import torch
import transformers
from safetensors.torch import save_file
from tests.support.gguf_file import write_gguf
from tests.test_safety_inspect import mutated

import modeldyno
from modeldyno.base.errors import ModelDynoError
from modeldyno.testing.loaders import is_one_sentence

if TYPE_CHECKING:
    from collections.abc import Callable

MUTATIONS = int(os.environ.get("MODELDYNO_FUZZ", "100"))
PARTS = 4
"""Tests that they are shared out to."""
MOST_SECONDS = 5.0
"""Of processor time, for one file."""
MOST_MEMORY = 512 * 2**20
"""Bytes beyond what the imports take."""


def an_onnx(folder: Path) -> tuple[Path, Path]:
    """Save the digit classifier's graph with a loop of shapes in it."""
    source = Path(__file__).parents[1] / "examples/digits/digits.onnx"
    path = folder / "m.onnx"
    shutil.copy(source, path)
    onnx.checker.check_model(str(path))
    return path, path


def a_safetensors(folder: Path) -> tuple[Path, Path]:
    """Save a few tensors."""
    path = folder / "m.safetensors"
    save_file({"a.weight": torch.ones(4, 3), "a.bias": torch.zeros(4, dtype=torch.bfloat16)}, path)
    return path, path


def a_gguf(folder: Path) -> tuple[Path, Path]:
    """Write a header of a few tensors."""
    path = write_gguf(folder / "m.gguf")
    return path, path


def a_configuration(folder: Path) -> tuple[Path, Path]:
    """Save a small BERT's configuration: a directory whose config.json is damaged."""
    sizes = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
    transformers.BertConfig(vocab_size=50, **sizes).save_pretrained(folder)
    return folder, folder / "config.json"


def a_program(folder: Path) -> tuple[Path, Path]:
    """Export a small program."""
    path = folder / "m.pt2"
    torch.export.save(torch.export.export(torch.nn.Linear(4, 3), (torch.ones(3, 4),)), path)
    return path, path


FORMATS: dict[str, tuple[str, Callable[[Path], tuple[Path, Path]]]] = {
    "onnx": ("onnx", an_onnx),
    "safetensors": ("safetensors", a_safetensors),
    "gguf": ("gguf", a_gguf),
    "hf-config": ("hf-config", a_configuration),
    "exported": ("exported", a_program),
}


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Change bytes; half of the time what they stand for, so that a document stays one."""
    if draw.random() < 0.5 or content[:2] == b"PK":
        return mutated(content, draw)
    if content[:1] != b"{":
        return rewired(content, draw) if content[:1] == b"\x08" else mutated(content, draw)
    document: dict[str, Any] = json.loads(content)
    for _ in range(draw.randint(1, 3)):
        wild = [-1, 0, 3, 10**9, 10**30, 0.5, "x", None, [], {}, True, "../../etc/passwd", float("nan")]
        document[draw.choice([*document])] = draw.choice(wild)
    return json.dumps(document).encode()


def rewired(content: bytes, draw: random.Random) -> bytes:
    """Change an ONNX graph: operators, names, attributes, shapes and types."""
    model = onnx.load_from_string(content)
    graph = model.graph
    for _ in range(draw.randint(1, 4)):
        node, tensor = draw.choice(graph.node), draw.choice(graph.initializer)
        number = draw.choice([-1, 0, 1, 7, 2**31, 2**62])
        match draw.randrange(8):
            case 0:
                node.op_type = draw.choice(["Conv", "Loop", "If", "Reshape", "LSTM", "Einsum", "Nothing", ""])
            case 1 if node.input:
                node.input[draw.randrange(len(node.input))] = draw.choice(["", node.output[0], "absent"])
            case 2:
                node.attribute.append(onnx.helper.make_attribute(draw.choice(["axis", "perm", "to"]), number))
            case 3 if tensor.dims:
                tensor.dims[draw.randrange(len(tensor.dims))] = number
            case 4:
                tensor.data_type = draw.randrange(0, 40)
            case 5:
                graph.input[0].type.tensor_type.shape.dim.add().dim_value = number
            case 6:
                graph.node.insert(
                    draw.randrange(len(graph.node)), graph.node[draw.randrange(len(graph.node))]
                )
            case _:
                model.opset_import[0].version = draw.choice([-1, 0, 1, 6, 99, 2**40])
    return bytes(model.SerializeToString())


def examined(scheme: str, path: Path) -> str:
    """Inspect a file in this process; give how it ended."""
    refusal = ""
    try:
        result = modeldyno.inspect(f"{scheme}:{path}", inline=True)
    except ModelDynoError as error:
        refusal = str(error)
    if refusal:
        assert is_one_sentence(refusal), refusal
        return "refused"
    for failure in result.failures:
        assert "Traceback" not in failure.message
    return "failed" if result.failures else "analysed"


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files_are_analysed_or_refused(tmp_path: Path, name: str, part: int) -> None:
    """Of many mutations of a model's file none raises another error, takes 5 s or 512 MiB."""
    scheme, make = FORMATS[name]
    model, file = make(tmp_path)
    assert examined(scheme, model) == ("refused" if name == "exported" else "analysed")
    whole = file.read_bytes()
    draw = random.Random(part)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    slowest = 0.0
    ends = dict.fromkeys(("refused", "failed", "analysed"), 0)
    for _ in range(MUTATIONS // PARTS):
        file.write_bytes(damaged(whole, draw))
        begin = time.process_time()
        ends[examined(scheme, model)] += 1
        slowest = max(slowest, time.process_time() - begin)
    print(name, ends, f"slowest {slowest:.2f} s")
    assert ends["refused"]
    assert slowest <= MOST_SECONDS
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 <= MOST_MEMORY
