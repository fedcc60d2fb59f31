"""TLS as a target asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modeldyno.errors import RequestError

if TYPE_CHECKING:
    import ssl

    from modeldyno.core.load.request_target import Target


def context(target: Target, *, protocols: tuple[str, ...] = ()) -> ssl.SSLContext | None:
    """Make the context of a target's TLS, offering protocols by ALPN; None where it speaks none.

    Raises RequestError for files that cannot be used.
    """
    if target.tls is None:
        return None
    import ssl  # noqa: PLC0415 - heavy

    asked = target.tls
    try:
        made = ssl.create_default_context(cafile=asked.authority)
        if asked.certificate is not None:
            made.load_cert_chain(asked.certificate, asked.key)
    except OSError as error:  # an SSLError is one
        files = ", ".join(filter(None, (asked.authority, asked.certificate, asked.key)))
        raise RequestError(f"Cannot use the TLS files {files}: {error.strerror or error}.") from error
    if not asked.verify:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    if protocols:
        made.set_alpn_protocols(list(protocols))
    return made


def name(target: Target) -> str:
    """Give the name that the server's certificate is to have."""
    return (target.tls.name if target.tls is not None else None) or target.host


def options(target: Target, *, protocols: tuple[str, ...] = ()) -> dict[str, Any]:
    """Give what an event loop's `create_connection` wants to know."""
    made = context(target, protocols=protocols)
    return {} if made is None else {"ssl": made, "server_hostname": name(target)}
