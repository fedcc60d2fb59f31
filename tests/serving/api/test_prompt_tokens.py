"""Prompts of a number of tokens reach a server, which counts as many."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from tests.engine.data.test_token_prompts import a_tokenizer

import modeldyno
from modeldyno.base import plugins
from modeldyno.base.errors import RequestError
from modeldyno.engine.data.token_prompts import find_tokenizer, open_tokenizer
from modeldyno.testing.server import serve_in_subprocess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FAST = {"requests": 12, "concurrency": 2, "max_time": 20, "store": False, "progress": False}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server that counts words, which are tokens of one kind."""
    with serve_in_subprocess("--pace", "0.0005") as server:
        yield f"http://127.0.0.1:{server.port}/v1"


@pytest.fixture(scope="module")
def templated() -> Iterator[str]:
    """A server whose chat template adds nine tokens."""
    with serve_in_subprocess("--pace", "0.0005", "--template", "9") as server:
        yield f"http://127.0.0.1:{server.port}/v1"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer that splits no word of a prompt, as the server counts."""
    tokenizers = pytest.importorskip("tokenizers")
    from modeldyno.models.word_list import WORDS

    words = {word: at for at, word in enumerate(["[UNK]", *dict.fromkeys(WORDS)])}
    whole = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    whole.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    folder = tmp_path_factory.mktemp("words")
    whole.save(str(folder / "tokenizer.json"))
    return folder


def test_the_server_counts_as_many_tokens_as_were_asked_for(url: str, tokenizer: Path) -> None:
    """Of prompts and of answers, and nothing is doubted of them."""
    result = modeldyno.load(url, prompt_tokens=37, output_tokens=5, tokenizer=str(tokenizer), **FAST)  # type: ignore[arg-type]

    assert result["prompt_tokens"] == 37
    codes = {doubt.code for doubt in result.doubts}
    assert not codes & {"length-differs", "fewer-tokens", "repeated-request"}
    assert "of 37 tokens each, for answers of at most 5" in str(result)


def test_the_same_is_asked_for_as_an_input(url: str, tokenizer: Path) -> None:
    """With different lengths, drawn for each prompt."""
    source = "prompt=tokens:20..30/4"
    result = modeldyno.load(url, inputs=source, tokenizer=str(tokenizer), endpoint="chat", **FAST)  # type: ignore[arg-type]

    assert 20 <= (result["prompt_tokens"] or 0) <= 30
    assert result.inputs[0].source == "tokens:20..30/4"


@pytest.mark.parametrize(
    ("options", "added"),
    [
        ({"endpoint": "chat", "prompt_tokens": 37}, 9),
        ({"endpoint": "messages", "prompt_tokens": "20..30"}, 9),
        ({"endpoint": "chat", "prompt_tokens": 64, "shared_prefix": 32}, 9),
        ({"endpoint": "chat", "inputs": "prompt=tokens:20..30/4"}, 9),
        ({"prompt_tokens": 37, "batch_size": 3}, None),
    ],
)
def test_prompts_are_exact_with_what_a_chat_template_adds(
    templated: str, tokenizer: Path, options: dict[str, object], added: int | None
) -> None:
    """Every prompt of the load, and not the first alone: the server counts them all."""
    result = modeldyno.load(templated, tokenizer=str(tokenizer), **options, **FAST)  # type: ignore[arg-type]

    assert result.number("template_tokens") == added
    assert "length-differs" not in {doubt.code for doubt in result.doubts}
    if isinstance(options.get("prompt_tokens"), int):
        expected = int(str(options["prompt_tokens"])) * int(str(options.get("batch_size", 1)))
        assert result["prompt_tokens"] == expected
        assert result["prompt_token_rate"] == pytest.approx(
            expected * (result["request_rate"] or 0), rel=1e-6
        )


def test_prompts_shorter_than_a_chat_template_are_sent_and_doubted(templated: str, tokenizer: Path) -> None:
    """No text has less than no tokens."""
    options = {"endpoint": "chat", "prompt_tokens": "4..20", "tokenizer": str(tokenizer)}
    result = modeldyno.load(templated, **options, **FAST)  # type: ignore[arg-type]

    assert result.find("template_tokens") is None
    (doubt,) = (doubt for doubt in result.doubts if doubt.code == "length-differs")
    assert doubt.advice.endswith("or ask for 9 fewer")


class _SecondCut(BaseHTTPRequestHandler):
    """Answers chats of a template of nine tokens, but closes the connection of the second request."""

    requests = 0

    def do_GET(self) -> None:
        models = json.dumps({"object": "list", "data": [{"id": "m", "object": "model"}]}).encode()
        self.send_response(200 if self.path.endswith("/models") else 404)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(models)))
        self.end_headers()
        self.wfile.write(models)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        type(self).requests += 1
        if self.requests == 2:
            return
        tokens = len(body["messages"][-1]["content"].split()) + 9
        events: tuple[dict[str, Any], ...] = (
            {"choices": [{"index": 0, "delta": {"content": "yes"}, "finish_reason": "stop"}]},
            {"choices": [], "usage": {"prompt_tokens": tokens, "completion_tokens": 1}},
        )
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write(b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events))

    def log_message(self, *_: object) -> None:
        """Write nothing."""


def test_prompts_stay_as_they_are_if_the_request_with_shorter_ones_fails(tokenizer: Path) -> None:
    """The first one was answered, so the load is measured, and the doubt says that prompts are longer."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _SecondCut) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        result = modeldyno.load(
            f"http://127.0.0.1:{server.server_port}/v1", endpoint="chat", prompt_tokens=37,
            tokenizer=str(tokenizer), **FAST,  # type: ignore[arg-type]
        )  # fmt: skip
        server.shutdown()

    assert result.failure is None
    assert result["prompt_tokens"] == 46
    assert result.find("template_tokens") is None
    assert "length-differs" in {doubt.code for doubt in result.doubts}


def test_a_trace_has_its_lengths_behind_a_chat_template(
    templated: str, tokenizer: Path, tmp_path: Path
) -> None:
    """Also where prompts share blocks."""
    lines = [
        {"timestamp": 20 * at, "input_length": 40 + at % 3, "output_length": 4, "hash_ids": [at % 2]}
        for at in range(60)
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, lines)))
    result = modeldyno.load(
        templated, replay=tmp_path / "t.jsonl", endpoint="chat", tokenizer=str(tokenizer),
        records=tmp_path / "r.csv", store=False, progress=False,
    )  # fmt: skip

    assert result["template_tokens"] == 9
    assert result["prompt_tokens"] == 40
    assert "length-differs" not in {doubt.code for doubt in result.doubts}


def test_lengths_of_a_file_are_sent_in_pairs(url: str, tokenizer: Path, tmp_path: Path) -> None:
    """And the result says from which file they are."""
    (tmp_path / "pairs.csv").write_text("prompt_tokens,output_tokens\n37,5\n")
    lengths = {"prompt_tokens": f"@{tmp_path / 'pairs.csv'}", "tokenizer": str(tokenizer)}
    result = modeldyno.load(url, **lengths, **FAST)  # type: ignore[arg-type]

    assert result["prompt_tokens"] == 37
    assert not any(doubt.code == "fewer-tokens" for doubt in result.doubts)
    assert "pairs.csv, for answers of the lengths beside them" in " ".join(str(result).split())


def test_another_count_of_the_server_is_a_doubt(url: str, tmp_path: Path) -> None:
    """Its tokenizer is another one: the words of this one have several pieces."""
    file = a_tokenizer("bytes", tmp_path)
    result = modeldyno.load(url, prompt_tokens=200, output_tokens=4, tokenizer=str(file), **FAST)  # type: ignore[arg-type]

    (doubt,) = (doubt for doubt in result.doubts if doubt.code == "length-differs")
    assert "tokens in a prompt of 200" in doubt.seen
    assert doubt.advice.endswith(" more")


@pytest.mark.parametrize(
    ("options", "intended"),
    [
        ({}, 0.0),
        ({"drivers": 2}, 0.0),
        ({"endpoint": "chat", "prompt_tokens": 256, "inputs": ()}, 0.0),
        ({"prompt_tokens": 256, "shared_prefix": 192, "inputs": ()}, 0.75),
        ({"prefix_cache": "primed"}, 1.0),
    ],
    ids=["words", "of two drivers", "tokens", "alike", "primed"],
)
def test_prompts_that_are_sent_again_are_new_to_a_prefix_cache(
    tokenizer: Path, options: dict[str, object], intended: float
) -> None:
    """Unless it was asked that the server may have them; nothing is doubted either way."""
    with serve_in_subprocess("--pace", "0.0002", "--prefix-cache", "--workers", "8") as server:
        result = modeldyno.load(
            f"http://127.0.0.1:{server.port}/v1", tokenizer=str(tokenizer), max_tokens=2,
            **{**FAST, "inputs": "prompt=1:string:128", "requests": 1200, "concurrency": 8, **options},
        )  # fmt: skip
    tolerance = 0.1 if intended == 1 else 0.02  # no server has the first round
    assert abs((result.number("cached_prompt_share") or 0) - intended) <= tolerance
    assert "cached-prompts" not in {doubt.code for doubt in result.doubts}


@pytest.mark.parametrize("stream", [True, False])
def test_the_tokens_of_a_server_that_counts_none_are_counted(tokenizer: Path, stream: bool) -> None:
    """By the tokenizer, which is said; without one they are not known."""
    with serve_in_subprocess("--pace", "0.001", "--no-usage", "--service", "constant:0.002") as server:
        url = f"http://127.0.0.1:{server.port}/v1"
        options = {**FAST, "requests": 300, "max_tokens": 8, "stream": stream}
        counted = modeldyno.load(url, tokenizer=str(tokenizer), **options)  # type: ignore[arg-type]
        unknown = modeldyno.load(url, **options)  # type: ignore[arg-type]

    assert {doubt.code for doubt in counted.doubts} & {"own-token-counts", "no-token-counts"} == {
        "own-token-counts"
    }
    one = open_tokenizer(find_tokenizer(str(tokenizer))).encode(" word" * 8, add_special_tokens=False)
    assert counted["token_rate"] == pytest.approx(len(one.ids) * (counted["request_rate"] or 0), rel=1e-6)
    assert unknown.find("token_rate") is None
    assert "no-token-counts" in {doubt.code for doubt in unknown.doubts}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, "need the model's tokenizer"),
        ({"tokenizer": "/no/such"}, "There is no tokenizer"),
        ({"inputs": "prompt=1:string:3..3"}, "gives the prompts, which prompt_tokens"),
        ({"inputs": "prompt=tokens:x"}, "is no number of tokens"),
    ],
)
def test_what_lacks_or_contradicts_is_refused(url: str, more: dict[str, str], why: str) -> None:
    """In one sentence."""
    with pytest.raises(RequestError, match=why):
        modeldyno.load(url, prompt_tokens=20, **more, **FAST)  # type: ignore[arg-type]


def test_a_tokenizer_that_cannot_be_read_is_refused(url: str, tmp_path: Path) -> None:
    """Also where only answers would be counted by it."""
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(RequestError, match="is no tokenizer that can be read"):
        modeldyno.load(url, tokenizer=str(tmp_path), max_tokens=4, **FAST)  # type: ignore[arg-type]


def test_a_model_without_prompts_has_no_tokens_to_ask_for() -> None:
    """It takes tensors."""
    with pytest.raises(RequestError, match="makes prompts, which only a server of a language model takes"):
        modeldyno.profile("examples/digits/digits.onnx", inputs="tokens:20", store=False, progress=False)


def test_prompts_that_the_server_has_cached_are_told(tokenizer: Path) -> None:
    """The same seed sends the same prompts, which a prefix cache answers sooner; another one does not.

    The server is slow, so that no load comes to the end of its prompts and sends them again.
    """
    sent = {"prompt_tokens": 64, "output_tokens": 2, "tokenizer": str(tokenizer)}
    with serve_in_subprocess("--pace", "0.02", "--prefix-cache") as server:
        runs = [
            modeldyno.load(f"http://127.0.0.1:{server.port}/v1", seed=seed, **sent, **FAST)  # type: ignore[arg-type]
            for seed in (1, 1, 2)
        ]

    shares = [run["cached_prompt_share"] or 0.0 for run in runs]
    assert shares[1] > 0.2  # it may send some more than the first did
    assert max(shares[0], shares[2]) < 0.01
    assert [any(doubt.code == "cached-prompts" for doubt in run.doubts) for run in runs] == [
        False,
        True,
        False,
    ]


def test_a_cache_that_is_emptied_before_a_load_has_nothing_of_the_last_one(tokenizer: Path) -> None:
    """And a path that does not do that is refused, rather than measured with a full cache."""
    sent = {"prompt_tokens": 64, "output_tokens": 2, "tokenizer": str(tokenizer)}
    with serve_in_subprocess("--pace", "0.02", "--prefix-cache") as server:
        url = f"http://127.0.0.1:{server.port}/v1"
        shares = [
            modeldyno.load(url, reset_cache="/reset_prefix_cache", **sent, **FAST)["cached_prompt_share"]  # type: ignore[arg-type]
            for _ in range(2)
        ]
        with pytest.raises(RequestError, match="POST /reset is answered with 404; check reset_cache"):
            modeldyno.load(url, reset_cache="/reset", **sent, **FAST)  # type: ignore[arg-type]

    assert max(share or 0.0 for share in shares) < 0.01


def test_each_load_of_a_ladder_sends_prompts_of_its_own(tokenizer: Path) -> None:
    """A prefix cache knows none of them from the load before; the same load again sends the same."""
    lengths = {"prompt_tokens": 64, "output_tokens": 2, "tokenizer": str(tokenizer)}
    with serve_in_subprocess("--pace", "0.02", "--prefix-cache") as server:
        url = f"http://127.0.0.1:{server.port}/v1"
        two, four = (
            modeldyno.load(url, **(FAST | lengths | {"concurrency": slots}))  # type: ignore[arg-type]
            for slots in (2, 4)
        )

    assert two.inputs[0].digest != four.inputs[0].digest
    assert (four["cached_prompt_share"] or 0.0) < 0.01


def test_the_length_of_answers_is_asked_for_without_a_tokenizer(url: str) -> None:
    """Prompts are as long as by default, and the page says so."""
    result = modeldyno.load(url, output_tokens=3, **FAST)  # type: ignore[arg-type]

    assert result["prompt_tokens"] == 128
    assert "of 128 words each, for answers of at most 3" in " ".join(str(result).split())


@pytest.mark.parametrize("backend", ["remote", "openai"])
def test_a_length_that_is_none_is_refused_before_anything_is_opened(backend: str) -> None:
    """As any other setting of a backend is."""
    with pytest.raises(RequestError, match="The knob output_tokens 'x' is no number of tokens"):
        plugins.backend(backend).check({"output_tokens": "x"})


@pytest.mark.parametrize(("shared", "batch"), [(0, 1), (240, 1), (432, 1), (240, 2)])
def test_prompts_that_begin_alike_are_cached_as_far_as_asked_for(
    tokenizer: Path, shared: int, batch: int
) -> None:
    """Within two percent, which is no doubt then; a request may have several prompts."""
    file = str(tokenizer / "tokenizer.json")
    sent = {"prompt_tokens": 480, "shared_prefix": shared, "output_tokens": 2, "tokenizer": file}
    more = {"requests": 30} | ({} if batch == 1 else {"batch_size": batch})
    with serve_in_subprocess("--pace", "0.002", "--prefix-cache", "--tokenizer", file) as server:
        result = modeldyno.load(f"http://127.0.0.1:{server.port}/v1", **FAST | sent | more)  # type: ignore[arg-type]

    assert result["prompt_tokens"] == 480 * batch
    assert result["cached_prompt_share"] == pytest.approx(shared / 480, abs=0.02)
    assert not any(doubt.code == "cached-prompts" for doubt in result.doubts)
    assert (f"of which the first {shared} are the same in all" in " ".join(str(result).split())) == (
        shared > 0
    )


def test_more_in_the_cache_than_was_to_be_alike_is_told(tokenizer: Path) -> None:
    """The same seed sends the same prompts, which the server has as a whole."""
    sent = {"prompt_tokens": 64, "shared_prefix": 32, "output_tokens": 2, "tokenizer": str(tokenizer)}
    with serve_in_subprocess("--pace", "0.02", "--prefix-cache") as server:
        url = f"http://127.0.0.1:{server.port}/v1"
        _, again = (modeldyno.load(url, **sent, **FAST) for _ in range(2))  # type: ignore[arg-type]

    (doubt,) = (doubt for doubt in again.doubts if doubt.code == "cached-prompts")
    assert "instead of the 50% with which they were to begin alike" in doubt.seen
