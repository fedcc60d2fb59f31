from __future__ import annotations

import json
import os
import signal
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError
from modeldyno.base.job.knob import configure
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.engine.interfaces.request_target import Endpoint
from modeldyno.engine.interfaces.server_stats import ServerCounters
from modeldyno.engine.interfaces.session import LocalSession, RequestSession
from modeldyno.models.interface import Form, Model
from modeldyno.profiling.resolve_model import resolve_reference
from modeldyno.serving.backends import remote
from modeldyno.serving.backends.request_knobs import PROTOCOL_KNOBS
from modeldyno.serving.loadgen.driver_pool import send_once
from modeldyno.testing.server import serve_in_subprocess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.testing.server import RunningServer

SHARED = Path("/dev/shm")
FEED = {"x": np.arange(8, dtype="float32").reshape(2, 4)}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """A server that gives back what it is sent, over every protocol of HTTP."""
    with serve_in_subprocess("--tokens", "3", "--pace", "0.0005") as running:
        yield running


def at(server: RunningServer, rest: str) -> Model:
    """Load a model of the server by its URL."""
    ref = resolve_reference(f"http://127.0.0.1:{server.port}{rest}")
    return plugins.loader(ref.scheme).load(ref, seed=0, trust=False)


def elsewhere(protocol: str = "http", **more: Any) -> Model:
    """Make a model of a server that nobody asks."""
    return Model(
        identity=ModelIdentity(name="net", digest="sha256:" + "0" * 64, framework=protocol),
        form=Form.REMOTE,
        value=Endpoint(host="127.0.0.1", port=1, model="net", protocol=protocol, **more),
        inputs=(),
    )


@contextmanager
def session(model: Model, **settings: Any) -> Iterator[Any]:
    """Open the backend with knobs as a user writes them."""
    config = configure(remote.knobs, settings)
    remote.check(config)
    with remote.open(model, config) as opened:
        assert isinstance(opened, RequestSession)
        assert not isinstance(opened, LocalSession)
        assert opened.pid != os.getpid()
        yield opened


class TestProtocols:
    @pytest.mark.parametrize("settings", [{}, {"binary": "false"}, {"binary": "true"}])
    def test_kserve(self, server: RunningServer, settings: dict[str, str]) -> None:
        """An answer of the Open Inference Protocol gives back what was sent, in JSON and as raw bytes."""
        with session(at(server, "#echo"), **settings) as opened:
            target = opened.target([FEED])
            (output,) = opened.arrays(send_once(target)).values()

        assert output.tolist() == FEED["x"].tolist()
        assert (b"Inference-Header-Content-Length" in target.messages[0]) == (
            settings.get("binary") != "false"
        )

    @pytest.mark.parametrize("form", ["row", "columnar"])
    def test_tensorflow(self, server: RunningServer, form: str) -> None:
        """An answer of TensorFlow Serving's REST gives back what was sent."""
        with session(at(server, "#echo,protocol=tensorflow-http"), format=form) as opened:
            (output,) = opened.arrays(send_once(opened.target([FEED]))).values()

        assert output.tolist() == FEED["x"].tolist()

    def test_torchserve(self, server: RunningServer) -> None:
        """An answer of TorchServe gives back the inputs by name."""
        with session(at(server, "#echo,protocol=torchserve")) as opened:
            assert opened.arrays(send_once(opened.target([FEED])))["x"].tolist() == FEED["x"].tolist()

    @pytest.mark.parametrize("endpoint", ["completions", "chat"])
    @pytest.mark.parametrize("stream", ["true", "false"])
    def test_openai(self, server: RunningServer, endpoint: str, stream: str) -> None:
        """Text and tokens of OpenAI's protocol, streamed and whole."""
        settings = {"endpoint": endpoint, "stream": stream, "max_tokens": "5"}
        with session(at(server, "#echo,protocol=openai"), **settings) as opened:
            target = opened.target([{"prompt": np.array(["hello world"], object)}])
            reply = send_once(target)

            assert len(opened.arrays(reply)["text"][0].split()) == 5
            assert plugins.client("openai").tokens(reply) == 5
            assert target.stream == (stream == "true")

    @pytest.mark.parametrize("stream", ["true", "false"])
    def test_the_tokens_of_a_prompt(self, server: RunningServer, stream: str) -> None:
        """They are those that the server counts; nobody tells them of what is no text."""
        with session(at(server, "#echo,protocol=openai"), stream=stream) as opened:
            target = opened.target([{"prompt": np.array(["one two three"], object)}])
            assert target.counted
            assert opened.prompt_tokens(send_once(target)) == 3
        with session(at(server, "#echo")) as opened:
            assert opened.prompt_tokens(send_once(opened.target([FEED]))) == -1

    def test_a_model_that_is_not_there(self, server: RunningServer) -> None:
        """An answer that there is no such thing tells what there is, where the server lists it."""
        model = at(server, "#echo,protocol=openai")
        lost = replace(model, value=replace(model.value, path="/nowhere", model="nope"))
        with session(lost) as opened:
            reply = send_once(opened.target([{"prompt": np.array(["a"], object)}]))
            with pytest.raises(
                ValueError, match=r"404: no .* here; perhaps .* no model 'nope'; check the name"
            ):
                opened.arrays(reply)
            known = replace(opened, endpoint=replace(lost.value, path=""))
            with pytest.raises(ValueError, match=r"no model 'nope'; .* \(it has: echo\)$"):
                known.arrays(reply)
            there = replace(opened, endpoint=replace(lost.value, path="", model="echo"))
            with pytest.raises(ValueError, match=r"answered 404: no [^;]* here$"):
                there.arrays(reply)
        gone = elsewhere("torchserve")
        with session(gone) as opened, pytest.raises(ValueError, match="no model 'net'"):
            opened.arrays(reply)

    def test_plain(self, server: RunningServer) -> None:
        """A plain URL is asked as it is."""
        with session(at(server, "#protocol=http")) as opened:
            assert bytes(opened.arrays(send_once(opened.target([{}])))["body"]) == b"ok"


class TestBodies:
    def test_a_file_is_the_body(self, tmp_path: Path) -> None:
        """With @ a file is sent as it is, else the text itself."""
        path = tmp_path / "image.bin"
        path.write_bytes(b"\x89\x00")
        with session(elsewhere(), body=f"@{path}", content_type="image/png", method="PUT") as opened:
            (sent,) = opened.target([{}]).messages
        with session(elsewhere(), body="ping") as opened:
            (plain,) = opened.target([{}]).messages

        assert sent.startswith(b"PUT / HTTP/1.1")
        assert b"image/png" in sent
        assert sent.endswith(b"\r\n\r\n\x89\x00")
        assert plain.endswith(b"\r\n\r\nping")

    def test_each_line_is_a_body(self, tmp_path: Path) -> None:
        """A file of bodies has one on each line; blank ones are none."""
        path = tmp_path / "bodies.jsonl"
        path.write_text('{"a": 1}\n\n{"a": 2}\n')
        with session(elsewhere(), bodies=str(path)) as opened:
            sent = opened.target([{}]).messages

        assert [json.loads(message.partition(b"\r\n\r\n")[2]) for message in sent] == [{"a": 1}, {"a": 2}]

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"body": "@/no/such/file"}, "Cannot read"),
            ({"bodies": "/no/such/file"}, "Cannot read"),
            ({"body": "a", "bodies": "b"}, "give one of them"),
        ],
    )
    def test_what_cannot_be_sent_is_refused_early(self, settings: dict[str, str], message: str) -> None:
        """A file that is not there is told before anything is opened."""
        with pytest.raises(RequestError, match=message):
            remote.check(configure(remote.knobs, settings))

    def test_a_file_without_lines(self, tmp_path: Path) -> None:
        """A file of bodies must have one."""
        (tmp_path / "empty").write_text("\n")
        with pytest.raises(RequestError, match="no lines"):
            remote.check({"bodies": str(tmp_path / "empty")})


class TestKnobs:
    def test_a_knob_of_another_protocol_is_refused(self) -> None:
        """A knob that the server's protocol does not heed would have no effect, and is refused."""
        with (
            pytest.raises(RequestError, match="max_tokens is for openai, but net speaks torchserve"),
            session(elsewhere("torchserve"), max_tokens=3),
        ):
            pass
        with (
            pytest.raises(RequestError, match="tensorflow-http and tensorflow-grpc"),
            session(elsewhere(), signature="s"),
        ):
            pass

    def test_what_the_server_said_holds_unless_a_knob_says_otherwise(self) -> None:
        """Options that the loader found are kept; a knob wins."""
        model = elsewhere("torchserve", options={"content": "raw"})
        feed = {"x": np.array([1], "uint8")}
        with session(model) as opened:
            assert opened.target([feed]).messages[0].endswith(b"\x01")
        with session(model, content="json") as opened:
            assert opened.target([feed]).messages[0].endswith(b'{"x":[1]}')

    def test_every_option_has_a_protocol_that_exists(self) -> None:
        """Each knob but the batch size belongs to protocols that there are."""
        for protocols, knobs in PROTOCOL_KNOBS.items():
            assert set(protocols) <= set(plugins.names("client")), protocols
            assert all(knob.default is None for knob in knobs)  # what nobody sets is the server's own


class TestAccount:
    def test_a_server_that_counts_gives_its_account(self, server: RunningServer) -> None:
        """The counters of a server grow by what was sent between two looks, and by no more."""
        with session(at(server, "#echo")) as opened:
            target, counting = opened.target([FEED]), opened
            assert counting.has_statistics
            before = counting.account()
            for _ in range(3):
                send_once(target)
            added = counting.account().since(before)

        assert isinstance(added, ServerCounters)
        assert (added.requests, added.failures) == (3, 0)

    def test_a_server_that_does_not_count_gives_none(self, server: RunningServer) -> None:
        """Protocols without statistics, and servers that refuse them, have no account."""
        for model in (at(server, "#echo,protocol=torchserve"), elsewhere("kserve-http")):
            with session(model) as opened:
                assert not opened.has_statistics

    def test_a_server_of_language_models_is_read_at_its_usual_path(self) -> None:
        """Beside its API, whichever of those that are known it is; unless the knob says otherwise."""
        with serve_in_subprocess("--metrics", "vLLM", "--tokens", "3", "--pace", "0.001") as running:
            url = f"http://127.0.0.1:{running.port}/metrics"
            with session(at(running, "/v1#echo,protocol=openai")) as opened:
                assert opened.has_statistics
                before = opened.account()
                send_once(opened.target([{"prompt": np.array(["a b"], object)}]))
                added = opened.account().since(before)
            assert added.requests == 1
            assert 0 < added.decode <= added.compute
            with session(at(running, "/v1#echo,protocol=openai"), server_metrics="none") as opened:
                assert not opened.has_statistics
            for named in (url, url.removesuffix("/metrics")):
                with session(elsewhere("openai"), server_metrics=named) as opened:
                    assert opened.account().requests >= 1
            with session(elsewhere("http", options={"stream": True})) as opened:
                assert not opened.has_statistics

    def test_metrics_that_are_not_there_are_refused(self, server: RunningServer) -> None:
        """Where the knob names them: nobody is there, nothing is, or it is of no server that is known."""
        for path, message in (("/none", "answered 404"), ("/v1/models", "no metrics of vLLM, SGLang")):
            named = f"http://127.0.0.1:{server.port}{path}"
            with (
                pytest.raises(RequestError, match=message),
                session(elsewhere("openai"), server_metrics=named),
            ):
                pass
        for wrong in ("metrics", "ftp://host/metrics", "http://host:port/metrics"):
            with (
                pytest.raises(RequestError, match="is no URL"),
                session(elsewhere("openai"), server_metrics=wrong),
            ):
                pass

    def test_an_account_that_fails_later_is_an_os_error(self) -> None:
        """A server that is gone by the time of the second look is an OSError, as for any lost connection."""
        with serve_in_subprocess() as running, session(at(running, "#echo")) as opened:
            os.kill(running.pid, signal.SIGKILL)
            os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOWAIT)
            with pytest.raises(OSError, match=f"127.0.0.1:{running.port}"):
                opened.account()


def test_a_server_without_shared_memory_is_refused_and_leaves_none(server: RunningServer) -> None:
    """The region that it did not register is removed."""
    before = set(SHARED.iterdir())
    with (
        pytest.raises(RequestError, match="does not read this machine's shared memory"),
        session(at(server, "#echo"), shared_memory="system") as opened,
    ):
        opened.target([FEED])

    assert set(SHARED.iterdir()) <= before
