from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from modeldyno.base import plugins
from modeldyno.base.errors import MissingExtra, RequestError, ServerFailed
from modeldyno.base.job.knob import KnobValue, configure
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.engine.interfaces.server_stats import ServerCounters
from modeldyno.engine.interfaces.session import RequestSession
from modeldyno.models.interface import Form, Model
from modeldyno.serving.backends import openai
from modeldyno.serving.loadgen.single_request import send_once
from modeldyno.testing.backends import DeclaredSuite

if TYPE_CHECKING:
    from collections.abc import Mapping

SERVER = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
metrics, port, model = sys.argv[1:4]
METRICS = 'vllm:request_success_total{finished_reason="stop"} 3\\nvllm:request_queue_time_seconds_sum 1.5\\n'
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        answers = {"/v1/models": "{}", "/metrics": METRICS if metrics == "yes" else None, "/model": model}
        self.send_response(200 if answers.get(self.path) is not None else 404)
        self.end_headers()
        self.wfile.write((answers.get(self.path) or "").encode())
    def log_message(self, *words):
        pass
HTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A command, but for its first word, that starts a server which says what it was told."""
    monkeypatch.setenv("MODELDYNO_ENGINES", str(tmp_path / "engines"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "serve.py").write_text(SERVER)
    return f"{sys.executable} {tmp_path / 'serve.py'}"


def llama(path: str = "somebody/llama") -> Model:
    """A model of transformers, as far as it matters to a server that loads it itself."""
    identity = ModelIdentity(name="llama", digest="sha256:0", framework="torch")
    return Model(identity=identity, form=Form.TORCH, value=SimpleNamespace(name_or_path=path), inputs=())


def config(settings: Mapping[str, KnobValue]) -> dict[str, KnobValue]:
    """Complete and check knobs."""
    configuration = configure(openai.knobs, settings)
    openai.check(configuration)
    return configuration


class TestDeclared(DeclaredSuite):
    name = "openai"

    @pytest.fixture
    def model(self) -> Model:
        """A model of transformers."""
        return llama()


def test_a_command_is_told_where_to_listen_and_what_to_load(script: str, tmp_path: Path) -> None:
    """The placeholders are filled in; requests go to the port, and name the model as the command does."""
    configuration = config({"command": f"{script} no {{port}} {{model}}", "max_tokens": 7})
    with openai.open(llama(str(tmp_path)), configuration) as session:
        assert isinstance(session, RequestSession)
        assert not session.has_statistics
        assert session.control.text("GET", "/model") == str(tmp_path)
        target = session.target([{"prompt": np.array(["hello"], dtype=object)}])
        assert target.port == session.server.ports["http"]  # type: ignore[union-attr]
        assert b'"max_tokens":7' in target.messages[0].replace(b" ", b"")
        assert str(tmp_path).encode() in target.messages[0]
        assert target.stream


@pytest.mark.parametrize("variable", ["HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"])
def test_the_cache_of_models_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """Wherever a user has put it, it is made: `transformers serve` is never ready without one."""
    for name in ("HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(tmp_path / "new"))
    (place,) = openai._cache_environment().values()
    assert Path(place).is_dir()
    assert Path(place).is_relative_to(tmp_path / "new")


def test_the_metrics_of_vllm_are_an_account(script: str) -> None:
    """A server that tells of its work in vLLM's way has an account."""
    with openai.open(llama(), config({"command": f"{script} yes {{port}} {{model}}"})) as session:
        assert session.has_statistics
        assert session.account() == ServerCounters(requests=3, queue=1.5)


def test_requests_are_text(script: str) -> None:
    """What is sent is a prompt, whatever the model's own inputs are."""
    (spec,) = openai.inputs(config({"command": f"{script} no {{port}}"}))
    assert (spec.name, spec.dtype) == ("prompt", "string")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("serve --port 8000", "lacks {port}"),
        ("serve {port} {other}", "cannot be parsed"),
        ("serve {port} 'a", "No closing quotation"),
        ("", "is empty"),
        ("serve {port} {0}", "cannot be parsed"),
    ],
)
def test_commands_that_cannot_be(command: str, message: str) -> None:
    """A command that cannot be filled in is refused before anything is started."""
    with pytest.raises(RequestError, match=message):
        config({"command": command})


def test_what_is_not_known(script: str) -> None:
    """A model without a name, a server that fails, an engine that is not installed."""
    with pytest.raises(RequestError, match="give it as the knob model"):
        openai.open(llama(""), config({"command": f"{script} no {{port}}"})).__enter__()
    failing = config({"command": f"{sys.executable} -c 'import nothing' {{port}}"})
    with pytest.raises(ServerFailed, match="No module named 'nothing'"), openai.open(llama(), failing):
        pass
    with (
        pytest.raises(MissingExtra, match="modeldyno engine install openai"),
        openai.open(llama(), config({})),
    ):
        pass


@pytest.mark.engine
@pytest.mark.filterwarnings("ignore:invalid escape sequence")  # in torchao, once
def test_a_tiny_llama_behind_transformers_serve(tmp_path: Path) -> None:
    """A Llama of random weights answers a prompt, piece by piece, with as many tokens as were asked for."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    plain = tokenizers.Tokenizer(tokenizers.models.BPE())
    plain.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(special_tokens=["<s>", "</s>"], initial_alphabet=alphabet)
    plain.train_from_iterator(["a few words to learn from"], trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain, bos_token="<s>", eos_token="</s>"
    )
    tokenizer.save_pretrained(tmp_path)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    module = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=len(tokenizer), **sizes))
    module.save_pretrained(tmp_path)
    module = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    identity = ModelIdentity(name="llama", digest="sha256:0", framework="torch")
    model = Model(identity=identity, form=Form.TORCH, value=module, inputs=())
    backend = plugins.backend("openai")
    with backend.open(model, config({"max_tokens": 8})) as session:
        assert isinstance(session, RequestSession)
        target = session.target([{"prompt": np.array(["a few words"], dtype=object)}])
        reply = send_once(target)
        assert reply.status == 200
        assert set(session.arrays(reply)) == {"text"}
        assert 0 < plugins.client("openai").tokens(reply) <= 8
