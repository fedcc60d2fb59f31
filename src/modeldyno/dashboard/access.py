"""Who may look and who may change something: the tokens of a file, and the role that each gives."""

from __future__ import annotations

import hmac
import os
import secrets
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHORTEST = 20
"""Characters of a token: what is shorter could be guessed."""


class AccessRole(StrEnum):
    """What somebody may do."""

    READER = "reader"
    """See every page."""
    OPERATOR = "operator"
    """Use the forms that write, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessTokens:
    """The tokens that are taken, each with its role."""

    roles: tuple[tuple[str, AccessRole], ...]

    def role_of(self, token: str) -> AccessRole | None:
        """Return the role of a token, None if it is none; all are compared, so that time tells nothing."""
        same = [role for each, role in self.roles if hmac.compare_digest(each.encode(), token.encode())]
        return same[0] if same else None


def read_or_make_tokens(path: Path) -> tuple[AccessTokens, bool]:
    """Read the tokens of a file; if there is none, write one with a new token for each role.

    A line is a role and its token, such as ``reader 5f0c...``. A line that is empty or begins with ``#`` is
    left out.

    Returns:
        The tokens, and whether the file is new.

    Raises:
        RequestError: the file cannot be read or written, others may read it, or a line is not of that form.
    """
    try:
        new = not path.exists()
        if new:
            _make(path)
        elif os.name == "posix" and path.stat().st_mode & 0o007:
            raise RequestError(f"Everybody on this machine can read {path}; chmod 600 {path} ends that.")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RequestError(f"The token file {path} cannot be used: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise RequestError(f"The token file {path} is no text.") from error
    tokens = AccessTokens(roles=tuple(_parse(text, path)))
    if not tokens.roles:
        raise RequestError(f"The token file {path} has no token; a line is a role and a token.")
    return tokens, new


def _make(path: Path) -> None:
    lines = "".join(f"{role} {secrets.token_urlsafe(24)}\n" for role in AccessRole)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(lines)


def _parse(text: str, path: Path) -> Iterator[tuple[str, AccessRole]]:
    """Yield token and role of each line; no error repeats a token."""
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        if len(fields) != len(("role", "token")) or fields[0] not in set(AccessRole):
            raise RequestError(
                f"Line {number} of {path} is no token; a line is {' or '.join(AccessRole)} and the token."
            )
        if len(fields[1]) < SHORTEST:
            raise RequestError(
                f"The token in line {number} of {path} has fewer than {SHORTEST} characters; it could be "
                "guessed."
            )
        yield fields[1], AccessRole(fields[0])
