from __future__ import annotations

import pytest

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.engine.interfaces.request_target import Endpoint, Tls, Transport
from modeldyno.serving.load.endpoint_url import format_endpoint, parse_endpoint, parse_headers, unknown_model
from modeldyno.testing.loaders import is_one_sentence


@pytest.mark.parametrize(
    ("url", "endpoint", "transport"),
    [
        ("http://h", Endpoint(host="h", port=80), Transport.HTTP),
        ("https://h/", Endpoint(host="h", port=443, path="/", tls=Tls()), Transport.HTTP),
        ("HTTP://Host:8000#net", Endpoint(host="host", port=8000, model="net"), Transport.HTTP),
        (
            "http://[::1]:8/p#a@2",
            Endpoint(host="::1", port=8, path="/p", model="a", version="2"),
            Transport.HTTP,
        ),
        ("http://h/a?b=c", Endpoint(host="h", port=80, path="/a?b=c"), Transport.HTTP),
        ("grpc://h:1#o/r%2Cs", Endpoint(host="h", port=1, model="o/r,s"), Transport.GRPC),
        ("grpcs://h#@odd", Endpoint(host="h", port=443, model="@odd", tls=Tls()), Transport.GRPC),
        (
            "http://h#m@1,protocol=openai",
            Endpoint(host="h", port=80, model="m", version="1", protocol="openai"),
            Transport.HTTP,
        ),
        ("http://h#protocol=openai", Endpoint(host="h", port=80, protocol="openai"), Transport.HTTP),
        (
            "https://h#m,verify=no,authority=a%2Cb.pem,certificate=c,key=k,name=n",
            Endpoint(
                host="h",
                port=443,
                model="m",
                tls=Tls(verify=False, authority="a,b.pem", certificate="c", key="k", name="n"),
            ),
            Transport.HTTP,
        ),
    ],
)
def test_a_url_says_where_a_model_is(url: str, endpoint: Endpoint, transport: Transport) -> None:
    """Host, port, path and query are the server's; what follows the # is the model and how to reach it."""
    assert parse_endpoint(url) == (endpoint, transport)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://h:99999", "host or port cannot be read"),
        ("http://[::1", "host or port cannot be read"),
        ("ftp://h", "not the URL of a server"),
        ("http://", "not the URL of a server"),
        ("h:80", "not the URL of a server"),
        ("grpc://h#m", "no port"),
        ("http://me:secret@h", "Authorization"),
        ("http://h#m,nonsense", "not a setting"),
        ("http://h#m,verify=no", "no effect without TLS"),
        ("https://h#m,verify=maybe", "must be true or false"),
    ],
)
def test_what_is_no_such_url_is_refused(url: str, message: str) -> None:
    """A URL that is none, has no effect, or holds a secret is refused in a sentence that does not tell it."""
    with pytest.raises(RequestError, match=message) as caught:
        parse_endpoint(url)
    assert is_one_sentence(str(caught.value))
    assert "secret" not in str(caught.value)


def test_a_misspelt_setting_gets_a_suggestion() -> None:
    """A setting that is none is refused with the right name."""
    with pytest.raises(UnknownName, match="did you mean 'protocol'"):
        parse_endpoint("http://h#m,protocl=openai")


def test_headers_are_lines() -> None:
    """Headers are read a line each; a value may hold colons."""
    assert parse_headers("A: b\n\n  X-Key :  c:d \n") == (("A", "b"), ("X-Key", "c:d"))
    assert parse_headers("") == ()


@pytest.mark.parametrize(
    "url",
    [
        "http://me:hunter2@h#m", "http://me:hunter2@h:port#m", "grpc://me:hunter2@h#m", "ftp://me:hunter2@h#m",
        "http://hunter2@#m", "http://h?api_key=hunter2#m", "http://h/p?a=1&X-Amz-Signature=hunter2",
        "https://h?key=hunter2#m,protocol=http", "https://h?Access-Token=hunter2", "http://h?sig=hunter2#m",
        "http://h?subscription-key=hunter2", "http://h?token=hunter2&token=",
    ],
)  # fmt: skip
def test_a_secret_in_a_url_is_refused_and_not_shown(url: str) -> None:
    """A user, a password, and whatever a query calls a key or a token: no result would keep it secret."""
    with pytest.raises(RequestError) as caught:
        parse_endpoint(url)

    assert "hunter2" not in str(caught.value)


def test_a_query_without_a_secret_is_sent() -> None:
    """Other parameters, and credentials without a value, belong to the path."""
    endpoint, _ = parse_endpoint("http://h/p?model=key&version=2&key=#m")

    assert endpoint.path == "/p?model=key&version=2&key="


@pytest.mark.parametrize("text", ["A: b\nhunter2", ": hunter2"])
def test_a_header_that_is_none_is_not_told(text: str) -> None:
    """A line that is no header may be a secret: its number is told, not the line."""
    with pytest.raises(RequestError, match=r"Header [12] is not of the form") as caught:
        parse_headers(text)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://h:8000#m", "HTTPS://h", "grpc://h:1#m", "grpcs://h#m"])
def test_a_bare_url_is_a_reference(url: str) -> None:
    """The URL of a server needs no scheme before its own."""
    assert ModelRef.parse(url) == ModelRef.parse(f"url:{url}") == ModelRef(scheme="url", locator=url)


def test_a_model_that_a_server_does_not_know() -> None:
    """The phrase has the name, the version if any, and the first few of what there is."""
    assert unknown_model("a", "", ()) == "the server has no model 'a'; check the name after #"
    named = unknown_model("a", "2", ("b", "c"))
    assert named.endswith("'a' of version 2; check the name after # (it has: b, c)")
    assert unknown_model("a", "", tuple("bcdefghijk")).endswith("(it has: b, c, d, e, f, g, h, i, ...)")


@pytest.mark.parametrize(
    "url",
    [
        "http://h:8000#m",
        "http://h:8000#a%2Cb@2,protocol=kserve-http",
        "https://h:1/prefix#m,protocol=openai",
        "grpc://[::1]:8001#m,protocol=kserve-grpc",
    ],
)
def test_an_endpoint_is_written_as_the_url_that_it_was_read_from(url: str) -> None:
    """Scheme, host, path, model, version and protocol are kept; an endpoint that speaks gRPC says so."""
    endpoint, _ = parse_endpoint(url)

    assert format_endpoint(endpoint) == url


def test_how_long_a_server_is_waited_for_is_a_time() -> None:
    """In any unit of time; nothing else is."""
    assert parse_endpoint("http://host:8000#net,wait=2m")[0].wait == 120
    assert parse_endpoint("http://host:8000#net")[0].wait == 0
    with pytest.raises(RequestError, match=r"wait=soon in 'http://host:8000#net,wait=soon' is no time"):
        parse_endpoint("http://host:8000#net,wait=soon")
