"""The backend llamacpp: the command line that knobs make, and the real server."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pytest

import modeldyno
from modeldyno.base import plugins
from modeldyno.base.errors import MissingExtra, RequestError, ServerFailed
from modeldyno.base.job.knob import KnobValue, configure
from modeldyno.base.job.model_ref import ModelIdentity, ModelRef
from modeldyno.engine.interfaces.session import RequestSession
from modeldyno.models.interface import Form, Model
from modeldyno.serving.backends import llamacpp
from modeldyno.serving.loadgen.single_request import send_once
from modeldyno.testing.backends import DeclaredSuite, ServingSuite

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modeldyno.models.interface import Feed

EXAMPLE = Path(__file__).parents[3] / "examples" / "language_model" / "train.py"
INSIDE = Path(llamacpp.__file__).parents[1] / "servers" / "inside_server" / "llama_server.py"
SERVER = """
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        words = json.dumps(sys.argv[1:])
        answers = {"/health": "{}", "/metrics": "llamacpp:prompt_seconds_total 1", "/words": words}
        self.send_response(200 if self.path in answers else 404)
        self.end_headers()
        self.wfile.write(answers.get(self.path, "").encode())
    def log_message(self, *words):
        pass
HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


def a_file(path: Path) -> Model:
    """A model of llama.cpp, as far as it matters to a server that loads it itself."""
    identity = ModelIdentity(name="words", digest="sha256:0", framework="gguf")
    return Model(identity=identity, form=Form.GGUF, value=path, inputs=())


def config(settings: Mapping[str, KnobValue]) -> dict[str, KnobValue]:
    """Complete and check knobs."""
    configuration = configure(llamacpp.knobs, settings)
    llamacpp.check(configuration)
    return configuration


class TestDeclared(DeclaredSuite):
    name = "llamacpp"

    @pytest.fixture
    def model(self, tmp_path: Path) -> Model:
        """A model of llama.cpp."""
        return a_file(tmp_path / "m.gguf")


def test_what_is_not_set_is_left_to_the_server() -> None:
    """Without knobs there is no option; one that is as it would be without changes nothing."""
    assert llamacpp.server_options(config({})) == []
    assert llamacpp.server_options(config({"continuous_batching": True, "cache_prompt": True})) == []


def test_knobs_are_options_of_llama_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each knob is its option, by any of its names; a draft is found wherever the server starts."""
    monkeypatch.chdir(tmp_path)
    Path("draft.gguf").touch()
    settings: dict[str, KnobValue] = {
        "threads": 2, "threads_batch": 3, "slots": 4, "ctx_size": 4096, "n_batch": 512, "n_ubatch": 128,
        "cache_type_k": "q8_0", "cache_type_v": "f16", "flash_attn": "on", "gpu_layers": 0,
        "draft": "draft.gguf", "draft_max": 5, "cont_batching": False, "cache_prompt": False,
    }  # fmt: skip
    assert llamacpp.server_options(config(settings)) == [
        "--threads", "2", "--threads-batch", "3", "--parallel", "4", "--ctx-size", "4096",
        "--batch-size", "512", "--ubatch-size", "128", "--cache-type-k", "q8_0", "--cache-type-v", "f16",
        "--flash-attn", "on", "--n-gpu-layers", "0", "--model-draft", str(tmp_path / "draft.gguf"),
        "--spec-draft-n-max", "5", "--spec-type", "draft-simple", "--no-cont-batching", "--no-cache-prompt",
    ]  # fmt: skip


def test_a_server_of_your_own_gets_the_same_options(tmp_path: Path) -> None:
    """The command's own words come first; requests name the model by the alias that it was given."""
    (tmp_path / "serve.py").write_text(SERVER)
    command = f"{sys.executable} {tmp_path / 'serve.py'} --cache-reuse 256"
    configuration = config({"command": command, "parallel": 2, "max_tokens": 7})
    with llamacpp.open(a_file(tmp_path / "m.gguf"), configuration) as session:
        assert isinstance(session, RequestSession)
        assert session.has_statistics
        port = session.server.ports["http"]  # type: ignore[union-attr]
        assert json.loads(session.control.text("GET", "/words")) == [
            "--cache-reuse", "256", "--model", str(tmp_path / "m.gguf"), "--alias", "words", "--metrics",
            "--host", "127.0.0.1", "--port", str(port), "--parallel", "2",
        ]  # fmt: skip
        message = session.target([{"prompt": np.array(["hello"], dtype=object)}]).messages[0]
        assert b'"model":"words"' in message.replace(b" ", b"")


def test_the_packaged_server_knows_the_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the knobs give is set in the package's parameters, threads of prompts as the others if not set."""
    names = {f"GGML_TYPE_{name.upper()}": name for name in llamacpp._CACHE_TYPES}
    flash = {f"LLAMA_FLASH_ATTN_TYPE_{name}": name for name in ("ENABLED", "DISABLED", "AUTO")}
    kinds = SimpleNamespace(COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE="draft")

    def parameters() -> SimpleNamespace:
        draft = SimpleNamespace(mparams=SimpleNamespace())
        parts = {
            "model": SimpleNamespace(),
            "cpuparams": SimpleNamespace(),
            "cpuparams_batch": SimpleNamespace(),
        }
        return SimpleNamespace(speculative=SimpleNamespace(draft=draft), **parts)

    fake = ModuleType("xllamacpp")
    fake.CommonParams = parameters  # type: ignore[attr-defined]
    fake.ggml_type = SimpleNamespace(**names)  # type: ignore[attr-defined]
    fake.llama_flash_attn_type = SimpleNamespace(**flash)  # type: ignore[attr-defined]
    fake.common_speculative_type = kinds  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "xllamacpp", fake)
    server = imported("llama_server", INSIDE)
    (tmp_path / "d.gguf").touch()
    settings: dict[str, KnobValue] = {
        "threads": 2, "parallel": 4, "context": 4096, "n_batch": 512, "n_ubatch": 128, "cache_type_k": "q8_0",
        "cache_type_v": "f32", "flash_attention": "on", "draft": str(tmp_path / "d.gguf"), "draft_tokens": 5,
        "continuous_batching": False, "cache_prompt": False, "gpu_layers": 3,
    }  # fmt: skip
    words = ["--model", "m.gguf", "--alias", "m", "--metrics", "--host", "127.0.0.1", "--port", "80"]
    params = server.parameters(server.parse([*words, *llamacpp.server_options(config(settings))]))
    assert (params.model.path, params.model_alias, params.hostnames, params.port) == (
        "m.gguf", {"m"}, ["127.0.0.1"], 80,
    )  # fmt: skip
    assert (params.cpuparams.n_threads, params.cpuparams_batch.n_threads) == (2, 2)
    assert (params.n_parallel, params.n_ctx, params.n_batch, params.n_ubatch) == (4, 4096, 512, 128)
    assert (params.cache_type_k, params.cache_type_v, params.flash_attn_type) == ("q8_0", "f32", "ENABLED")
    assert (params.cont_batching, params.cache_prompt, params.endpoint_metrics) == (False, False, True)
    assert (params.speculative.draft.mparams.path, params.speculative.draft.n_max) == (
        str(tmp_path / "d.gguf"),
        5,
    )
    assert (params.speculative.types, params.n_gpu_layers) == (["draft"], 3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"command": ""}, "is empty"),
        ({"command": "llama-server {model}"}, "no placeholder"),
        ({"draft": "nowhere.gguf"}, "no file 'nowhere.gguf'"),
        ({"draft_tokens": 4}, "no effect without draft"),
        ({"ports": "1,2"}, "takes free, conventional or 1 numbers"),
    ],
)
def test_knobs_that_cannot_be(settings: dict[str, KnobValue], message: str) -> None:
    """What the server could not be started with is refused before anything is started."""
    with pytest.raises(RequestError, match=message):
        config(settings)


def test_an_engine_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence says how to install it."""
    monkeypatch.setenv("MODELDYNO_ENGINES", str(tmp_path))
    with (
        pytest.raises(MissingExtra, match="modeldyno engine install llamacpp"),
        llamacpp.open(a_file(tmp_path / "m.gguf"), config({})),
    ):
        pass


# --- the real server -----------------------------------------------------------------------------


def imported(name: str, path: Path) -> ModuleType:
    """Import a file that lies in no package."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both forms of a model of random weights, as the example writes them."""
    for package in ("torch", "transformers", "tokenizers", "gguf"):
        pytest.importorskip(package)
    train = imported("train", EXAMPLE)
    path = tmp_path_factory.mktemp("llm")
    tokenizer = train.learn_tokenizer(["Return the name of a file.", "Open a file, and read its lines."] * 10)
    train.torch.manual_seed(0)
    train.write_all(path, "model", train.make("model", tokenizer), tokenizer)
    return path


def loaded(path: Path) -> Model:
    """Load a file as a command does."""
    return plugins.loader("gguf").load(ModelRef(scheme="gguf", locator=str(path)), seed=0, trust=False)


@pytest.mark.engine
class TestReal(ServingSuite):
    """The suite of every backend that starts a server."""

    name = "llamacpp"
    local = ""
    settings: ClassVar[Mapping[str, KnobValue]] = {"temperature": 0, "max_tokens": 6, "threads": 1}

    @pytest.fixture
    def model(self, folder: Path) -> Model:
        """The small model."""
        return loaded(folder / "model.gguf")

    def feed(self, batch_size: int) -> Feed:
        """Prompts."""
        return {"prompt": np.array(["Return the name of a file. "] * batch_size, dtype=object)}


@pytest.mark.engine
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_texts_are_those_of_transformers(folder: Path) -> None:
    """llama.cpp continues a prompt with the tokens that Transformers gives for the same weights."""
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "model")
    module = transformers.AutoModelForCausalLM.from_pretrained(folder / "model")
    prompt = "Open a file, and read"
    ids = tokenizer(prompt, return_tensors="pt")
    expected = module.generate(**ids, max_new_tokens=8, do_sample=False)[0][ids["input_ids"].shape[1] :]
    knobs = config(
        {"temperature": 0, "max_tokens": 8, "threads": 1, "cache_type_k": "f32", "cache_type_v": "f32"}
    )
    with llamacpp.open(loaded(folder / "model.gguf"), knobs) as session:
        reply = send_once(session.target([{"prompt": np.array([prompt], dtype=object)}]))
        assert session.prompt_tokens(reply) == ids["input_ids"].shape[1]
        assert session.arrays(reply)["text"].tolist() == [
            tokenizer.decode(expected, skip_special_tokens=True)
        ]


@pytest.mark.engine
def test_a_draft_is_accepted_as_often_as_it_is_right(folder: Path) -> None:
    """A model that drafts for itself is right nearly always, and the server's metrics say so."""
    knobs = config({
        "temperature": 0, "max_tokens": 24, "threads": 1, "draft": str(folder / "model.gguf"),
        "extra": '{"ignore_eos": true}',
    })  # fmt: skip
    with llamacpp.open(loaded(folder / "model.gguf"), knobs) as session:
        send_once(session.target([{"prompt": np.array(["Open a file"], dtype=object)}]))
        counters = session.account()
    assert counters.drafted_tokens
    assert counters.accepted_tokens is not None
    assert counters.accepted_tokens / counters.drafted_tokens > 0.8
    assert counters.prefill
    assert counters.decode


@pytest.mark.engine
def test_a_load_needs_only_the_file(folder: Path) -> None:
    """The backend is that of the kind of file, and prompts are exact by the tokenizer beside it."""
    result = modeldyno.load(
        folder / "model.gguf", concurrency=2, max_time=6, prompt_tokens=16, output_tokens=4, threads=1
    )
    assert result.number("prompt_tokens") == 16
    assert result.number("parameters", scope="") == 2_361_600 + 256 * len(
        json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    )
    assert result.number("prefill_time")


@pytest.mark.engine
def test_what_the_server_cannot_do(tmp_path: Path, folder: Path) -> None:
    """The error has the server's own reason: a file that it cannot load, knobs that exclude each other."""
    (tmp_path / "bad.gguf").write_bytes(b"GGUF")
    reason = "error loading model: llama_model_loader: failed to load model from .*bad.gguf"
    with pytest.raises(ServerFailed, match=reason), llamacpp.open(a_file(tmp_path / "bad.gguf"), config({})):
        pass
    impossible = config({"cache_type_v": "q8_0", "flash_attention": "off"})
    with (
        pytest.raises(ServerFailed, match="llama_init_from_model: quantized V cache requires flash_attn"),
        llamacpp.open(loaded(folder / "model.gguf"), impossible),
    ):
        pass
