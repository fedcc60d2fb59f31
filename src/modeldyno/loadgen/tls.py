"""TLS contexts and options of a target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modeldyno.errors import RequestError

if TYPE_CHECKING:
    import ssl

    from modeldyno.core.load.request_target import Target


def make_ssl_context(target: Target, *, protocols: tuple[str, ...] = ()) -> ssl.SSLContext | None:
    """Return the context of a target's TLS, with `protocols` offered by ALPN; None without TLS.

    Raises RequestError for files that cannot be used.
    """
    if target.tls is None:
        return None
    import ssl  # noqa: PLC0415 - slow to import

    settings = target.tls
    try:
        ssl_settings = ssl.create_default_context(cafile=settings.authority)
        if settings.certificate is not None:
            ssl_settings.load_cert_chain(settings.certificate, settings.key)
    except OSError as error:  # an SSLError is one
        files = ", ".join(filter(None, (settings.authority, settings.certificate, settings.key)))
        raise RequestError(f"Cannot use the TLS files {files}: {error.strerror or error}.") from error
    if not settings.verify:
        ssl_settings.check_hostname = False
        ssl_settings.verify_mode = ssl.CERT_NONE
    if protocols:
        ssl_settings.set_alpn_protocols(list(protocols))
    return ssl_settings


def server_name(target: Target) -> str:
    """Return the name that the server's certificate must have."""
    return (target.tls.name if target.tls is not None else None) or target.host


def tls_options(target: Target, *, protocols: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the TLS arguments of an event loop's `create_connection`."""
    ssl_settings = make_ssl_context(target, protocols=protocols)
    return {} if ssl_settings is None else {"ssl": ssl_settings, "server_hostname": server_name(target)}
