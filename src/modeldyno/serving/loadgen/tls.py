"""TLS contexts and options of a target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError

if TYPE_CHECKING:
    import ssl

    from modeldyno.engine.interfaces.request_target import Target


def make_ssl_context(target: Target, *, protocols: tuple[str, ...] = ()) -> ssl.SSLContext | None:
    """Return the context of a target's TLS, with `protocols` offered by ALPN; None without TLS.

    Raises RequestError for files that cannot be used.
    """
    if target.tls is None:
        return None
    import ssl  # slow to import

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


class TlsError(OSError):
    """A connection failed for its TLS, or for want of it; its text says what to write in the URL."""


def tls_error(error: OSError, target: Target) -> TlsError | None:
    """Return what an error of TLS means for whoever wrote the URL; None for another error.

    An error of a certificate has the number of EPERM, by which Python would make it a PermissionError.
    """
    if type(error).__module__ != "ssl":  # not imported for plain connections
        return None
    where = f"{target.host}:{target.port}"
    if verdict := getattr(error, "verify_message", ""):
        verdict = verdict.rstrip(".")
        how = (
            "write name=NAME after # for the name that its certificate has"
            if "mismatch" in verdict
            else "write authority=FILE after # for the certificates to trust"
        )
        return TlsError(f"the certificate of {where} is not trusted ({verdict}); {how}, or verify=false")
    if getattr(error, "reason", "") in _NO_TLS:
        return TlsError(f"{where} does not speak TLS; {_WITHOUT}")
    return TlsError(f"{where}: TLS failed: {getattr(error, 'reason', None) or error}")


def no_handshake(target: Target) -> TlsError:
    """Return the error of a server that does not answer the first message of TLS."""
    return TlsError(f"{target.host}:{target.port} does not answer in TLS; if it speaks none, {_WITHOUT}")


_WITHOUT = "write http or grpc in place of https or grpcs"
_NO_TLS = frozenset({
    "WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING",
    "PACKET_LENGTH_TOO_LONG", "UNKNOWN_PROTOCOL",
})  # fmt: skip
"""Reasons of OpenSSL if the other side sends something else than TLS, or hangs up."""
_HANDSHAKE_TIME = 2.0
"""Seconds to find out whether a server speaks TLS."""


def missing_tls(target: Target) -> TlsError | None:
    """Return an error if a server that a plain request failed on speaks TLS; None if it does not."""
    import socket  # with ssl
    import ssl  # slow to import

    if target.tls is not None:
        return None
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((target.host, target.port), _HANDSHAKE_TIME) as link:
            context.wrap_socket(link, server_hostname=target.host).close()
    except OSError:
        return None
    return TlsError(f"{target.host}:{target.port} speaks TLS; write https or grpcs in place of http or grpc")


def server_name(target: Target) -> str:
    """Return the name that the server's certificate must have."""
    return (target.tls.name if target.tls is not None else None) or target.host


def tls_options(target: Target, *, protocols: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the TLS arguments of an event loop's `create_connection`."""
    ssl_settings = make_ssl_context(target, protocols=protocols)
    return {} if ssl_settings is None else {"ssl": ssl_settings, "server_hostname": server_name(target)}
