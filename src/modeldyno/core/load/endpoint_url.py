"""Where a server is, as a URL says it.

``http://host:8000/prefix#model@version,protocol=openai``: what stands before the ``#`` is sent, what follows
is for us. After the model come settings, each as ``,name=value``: the protocol, and how to speak TLS.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

from modeldyno.core.load.request_target import Endpoint, Tls, Transport
from modeldyno.errors import RequestError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCHEMES = {
    "http": (Transport.HTTP, False, 80),
    "https": (Transport.HTTP, True, 443),
    "grpc": (Transport.GRPC, False, None),
    "grpcs": (Transport.GRPC, True, 443),
}
"""Scheme to transport, whether it is encrypted, and the port where none is given."""
HEADERS_VARIABLE = "MODELDYNO_HEADERS"
"""Environment variable of headers to send with every request, one ``Name: value`` a line.

They may be secrets, and are kept nowhere else."""

_LISTED = 8
"""Models that are named at most."""
_SETTING = re.compile(r"(?P<name>[a-z]+)=(?P<value>.*)", re.DOTALL)
_TLS = ("verify", "authority", "certificate", "key", "name")
_SETTINGS = ("protocol", *_TLS)
_TRUTH = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


def parse(url: str) -> tuple[Endpoint, Transport]:
    """Read a URL as an endpoint, and say what carries requests there.

    Raises:
        RequestError: it is no such URL, or holds what must not be kept or has no effect.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise RequestError(f"'{url}' is no URL: its host or port cannot be read.") from None
    if parts.scheme not in SCHEMES or not host:
        raise RequestError(f"'{url}' is no URL of a server; write such as http://host:8000#model.")
    transport, encrypted, usual = SCHEMES[parts.scheme]
    port = port or usual
    if port is None:
        raise RequestError(f"'{url}' has no port; write such as grpc://{host}:8001#model.")
    if parts.username is not None or parts.password is not None:
        raise RequestError(
            f"The URL of {host} holds a user or password, which would be kept with every result; "
            f"send a header Authorization instead, by {HEADERS_VARIABLE} or --header."
        )
    named, settings = _fragment(parts.fragment)
    model, _, version = named.rpartition("@") if "@" in named[1:] else (named, "", "")
    return Endpoint(
        host=host,
        port=port,
        model=model,
        version=version,
        path=_path(parts),
        tls=_tls(url, settings, encrypted=encrypted),
        protocol=settings.get("protocol", ""),
    ), transport


def parse_headers(text: str) -> tuple[tuple[str, str], ...]:
    """Read ``Name: value`` lines; blank ones are skipped.

    Raises:
        RequestError: a line is none. It is not shown, as it may be a secret.
    """
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        name, colon, value = line.partition(":")
        if not line.strip():
            continue
        if not colon or not name.strip():
            raise RequestError(f"Header {number} is not of the form Name: value.")
        found.append((name.strip(), value.strip()))
    return tuple(found)


def unknown_model(name: str, version: str, known: Sequence[str]) -> str:
    """Say in a phrase that a server has no such model, and which it has, where it lists them."""
    which = f"'{name}'" + (f" of version {version}" if version else "")
    more = ", ..." if len(known) > _LISTED else ""
    has = f" (it has: {', '.join(known[:_LISTED])}{more})" if known else ""
    return f"the server knows no model {which}; check the name behind #{has}"


def _path(parts: SplitResult) -> str:
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


def _fragment(text: str) -> tuple[str, dict[str, str]]:
    """Split what follows the ``#`` into the model and the settings; a comma of the model is ``%2C``."""
    model, *rest = text.split(",")
    if match := _SETTING.fullmatch(model):
        model, rest = "", [match[0], *rest]
    settings: dict[str, str] = {}
    for part in rest:
        match = _SETTING.fullmatch(part)
        if match is None:
            raise RequestError(f"'{part}' in the URL's #{text} is no setting; write name=value.")
        if match["name"] not in _SETTINGS:
            raise UnknownName.among("setting of a URL", match["name"], _SETTINGS)
        settings[match["name"]] = unquote(match["value"])
    return unquote(model), settings


def _tls(url: str, settings: Mapping[str, str], *, encrypted: bool) -> Tls | None:
    given = [name for name in _TLS if name in settings]
    if not encrypted:
        if given:
            raise RequestError(f"{given[0]}= in '{url}' has no effect without TLS; write https or grpcs.")
        return None
    verify = _TRUTH.get(settings.get("verify", "true").lower())
    if verify is None:
        raise RequestError(f"verify={settings['verify']} in '{url}' is neither true nor false.")
    return Tls(
        verify=verify,
        authority=settings.get("authority"),
        certificate=settings.get("certificate"),
        key=settings.get("key"),
        name=settings.get("name"),
    )
