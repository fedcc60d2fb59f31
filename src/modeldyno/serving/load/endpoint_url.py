"""Read the URL of a model on a server.

``http://host:8000/prefix#model@version,protocol=openai``: the part before the ``#`` is sent to the server;
the part after it is for ModelDyno: the model, then settings as ``,name=value`` for the protocol and TLS.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.job.knob import BOOLEANS
from modeldyno.base.stats.units import SECONDS, parse_quantity
from modeldyno.engine.interfaces.request_target import Endpoint, Tls, Transport

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCHEMES = {
    "http": (Transport.HTTP, False, 80),
    "https": (Transport.HTTP, True, 443),
    "grpc": (Transport.GRPC, False, None),
    "grpcs": (Transport.GRPC, True, 443),
}
"""Scheme to transport, whether it is encrypted, and the default port."""
HEADERS_VARIABLE = "MODELDYNO_HEADERS"
"""Environment variable with headers to send with every request, one ``Name: value`` per line.

They may be secrets and are stored nowhere else."""

_MOST_LISTED = 8
"""Most models listed in a message."""
_SETTING = re.compile(r"(?P<name>[a-z]+)=(?P<value>.*)", re.DOTALL)
_USER = re.compile(r"//[^/?#]*@")
"""The user and password of a URL, which are shown nowhere."""
_SECRET_WORDS = frozenset(
    {
        "access_token", "api_key", "apikey", "auth", "client_secret", "key", "passwd", "password", "pwd",
        "secret", "sig", "signature", "subscription_key", "token", "x_amz_signature",
    }
)  # fmt: skip
"""Parameters of a query that servers take for credentials."""
_TLS = ("verify", "authority", "certificate", "key", "name")
_SETTINGS = ("protocol", "wait", *_TLS)


def parse_endpoint(url: str) -> tuple[Endpoint, Transport]:
    """Read a URL as an endpoint and the transport that carries its requests.

    Raises:
        RequestError: it is not such a URL, contains a secret, or has a setting without effect.
    """
    without_password = _USER.sub("//", url)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise RequestError(f"'{without_password}' is not a URL: its host or port cannot be read.") from None
    if parts.scheme not in SCHEMES or not host:
        raise RequestError(
            f"'{without_password}' is not the URL of a server; write for example http://host:8000#model."
        )
    transport, encrypted, default_port = SCHEMES[parts.scheme]
    port = port or default_port
    if port is None:
        raise RequestError(f"'{without_password}' has no port; write for example grpc://{host}:8001#model.")
    if parts.username is not None or parts.password is not None:
        raise RequestError(
            f"The URL of {host} contains a user or password, which would be stored with every result; "
            f"send an Authorization header instead: {HEADERS_VARIABLE} or `headers`."
        )
    for word, value in parse_qsl(parts.query):
        if value and word.lower().replace("-", "_") in _SECRET_WORDS:
            raise RequestError(
                f"The URL of {host} contains a value for '{word}', which would be stored with every result; "
                f"send it as a header instead: {HEADERS_VARIABLE} or `headers`."
            )
    name, settings = _parse_fragment(parts.fragment)
    model, _, version = name.rpartition("@") if "@" in name[1:] else (name, "", "")
    return Endpoint(
        host=host,
        port=port,
        model=model,
        version=version,
        path=(f"{parts.path}?{parts.query}" if parts.query else parts.path),
        tls=_parse_tls(url, settings, encrypted=encrypted),
        protocol=settings.get("protocol", ""),
        wait=_parse_wait(url, settings.get("wait", "0s")),
    ), transport


def format_endpoint(endpoint: Endpoint) -> str:
    """Write an endpoint without TLS settings of its own as the URL that `parse_endpoint` reads."""
    scheme = ("grpc" if endpoint.protocol.endswith("grpc") else "http") + ("s" if endpoint.tls else "")
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    version = f"@{endpoint.version}" if endpoint.version else ""
    protocol = f",protocol={endpoint.protocol}" if endpoint.protocol else ""
    model = quote(endpoint.model, safe="/:")
    return f"{scheme}://{host}:{endpoint.port}{endpoint.path}#{model}{version}{protocol}"


def parse_headers(text: str) -> tuple[tuple[str, str], ...]:
    """Read ``Name: value`` lines, skipping blank ones.

    Raises:
        RequestError: a line is malformed. The line is not shown, because it may be a secret.
    """
    headers = []
    for number, line in enumerate(text.splitlines(), 1):
        name, colon, value = line.partition(":")
        if not line.strip():
            continue
        if not colon or not name.strip():
            raise RequestError(f"Header {number} is not of the form Name: value.")
        headers.append((name.strip(), value.strip()))
    return tuple(headers)


def unknown_model(name: str, version: str, names: Sequence[str]) -> str:
    """Return the phrase that a server has no such model, with the models it has if it lists them."""
    which = f"'{name}'" + (f" of version {version}" if version else "")
    more = ", ..." if len(names) > _MOST_LISTED else ""
    has = f" (it has: {', '.join(names[:_MOST_LISTED])}{more})" if names else ""
    return f"the server has no model {which}; check the name after #{has}"


def _parse_fragment(text: str) -> tuple[str, dict[str, str]]:
    """Split the fragment into the model and the settings; ``%2C`` stands for a comma in the model's name."""
    model, *rest = text.split(",")
    if match := _SETTING.fullmatch(model):
        model, rest = "", [match[0], *rest]
    settings: dict[str, str] = {}
    for part in rest:
        match = _SETTING.fullmatch(part)
        if match is None:
            raise RequestError(f"'{part}' in the URL's #{text} is not a setting; write name=value.")
        if match["name"] not in _SETTINGS:
            raise UnknownName.among("setting of a URL", match["name"], _SETTINGS)
        settings[match["name"]] = unquote(match["value"])
    return unquote(model), settings


def _parse_wait(url: str, text: str) -> float:
    try:
        return parse_quantity(text, SECONDS)
    except RequestError as error:
        raise RequestError(f"wait={text} in '{url}' is no time: {error}") from None


def _parse_tls(url: str, settings: Mapping[str, str], *, encrypted: bool) -> Tls | None:
    names = [name for name in _TLS if name in settings]
    if not encrypted:
        if names:
            raise RequestError(f"{names[0]}= in '{url}' has no effect without TLS; write https or grpcs.")
        return None
    verify = BOOLEANS.get(settings.get("verify", "true").lower())
    if verify is None:
        raise RequestError(f"verify={settings['verify']} in '{url}' must be true or false.")
    return Tls(
        verify=verify,
        authority=settings.get("authority"),
        certificate=settings.get("certificate"),
        key=settings.get("key"),
        name=settings.get("name"),
    )
