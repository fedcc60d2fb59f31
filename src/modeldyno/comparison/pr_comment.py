"""The comment of a gate on a pull or merge request: posted once, and brought up to date by each later run.

A comment is found again by its first line, which is a comment of HTML that nobody sees. What is known of the
request is what the pipelines of GitHub and GitLab tell by their environment.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from modeldyno.errors import RequestError, RunFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_LONGEST = 65_000
"""Characters that GitHub takes; GitLab takes more."""
_PAGE, _PAGES = 100, 50
"""Comments of a page, and pages that are looked through."""
_PATIENCE = 30.0
"""Seconds that an answer may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """Where the comments of a request are."""

    forge: str
    comments: str
    """URL that lists them, and takes new ones."""
    one: str
    """URL of one of them, with ``{}`` for its id."""
    change: str
    """Method that replaces one."""
    headers: dict[str, str]

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Thread:
        """Read where a pipeline is at work, and on whose behalf.

        Raises:
            RequestError: it is no pipeline of a request, or there is no token.
        """
        if "GITHUB_REPOSITORY" in environment:
            return _github(environment)
        if "CI_MERGE_REQUEST_IID" in environment:
            return _gitlab(environment)
        raise RequestError(
            "There is no pull or merge request to comment on: neither GITHUB_REPOSITORY nor "
            "CI_MERGE_REQUEST_IID is set, as they are in a pipeline of GitHub or GitLab."
        )


def _github(environment: Mapping[str, str]) -> Thread:
    token = _needed(environment, "GITHUB_TOKEN", "a token that may write pull requests")
    number = environment.get("PULL_REQUEST") or _number(environment)
    if not number:
        raise RequestError("This run of GitHub is of no pull request; set PULL_REQUEST to its number.")
    root = f"{_root(environment.get('GITHUB_API_URL', 'https://api.github.com'))}/repos"
    repository = quote(environment["GITHUB_REPOSITORY"])
    return Thread(
        forge="GitHub",
        comments=f"{root}/{repository}/issues/{quote(number, safe='')}/comments",
        one=f"{root}/{repository}/issues/comments/{{}}",
        change="PATCH",
        headers={"Authorization": f"Bearer {token}", "Accept": "application/vnd.github+json"},
    )


def _number(environment: Mapping[str, str]) -> str:
    """Find the number of the pull request in the event, or in the name of what was checked out."""
    event = Path(environment.get("GITHUB_EVENT_PATH", ""))
    if event.is_file():
        told = json.loads(event.read_text(encoding="utf-8")).get("pull_request") or {}
        if told.get("number"):
            return str(told["number"])
    match = re.fullmatch(r"refs/pull/(\d+)/\w+", environment.get("GITHUB_REF", ""))
    return match[1] if match else ""


def _gitlab(environment: Mapping[str, str]) -> Thread:
    token = _needed(environment, "GITLAB_TOKEN", "an access token with the scope api")
    root = _root(environment.get("CI_API_V4_URL", "https://gitlab.com/api/v4"))
    project = quote(_needed(environment, "CI_PROJECT_ID", "the number of the project"), safe="")
    request = quote(environment["CI_MERGE_REQUEST_IID"], safe="")
    notes = f"{root}/projects/{project}/merge_requests/{request}/notes"
    return Thread(
        forge="GitLab",
        comments=notes,
        one=f"{notes}/{{}}",
        change="PUT",
        headers={"PRIVATE-TOKEN": token},
    )


def _needed(environment: Mapping[str, str], name: str, what: str) -> str:
    found = environment.get(name, "")
    if not found:
        raise RequestError(f"{name} is not set; give {what}.")
    return found


def _root(url: str) -> str:
    if urlsplit(url).scheme not in {"http", "https"}:
        raise RequestError(f"'{url}' is no address of a forge; it begins with https://.")
    return url.rstrip("/")


def comment(text: str, thread: Thread) -> str:
    """Post a comment, or replace the one of an earlier run that begins with the same line; say which.

    Raises:
        RequestError: the text does not begin with a line by which it would be found again.
        RunFailed: the forge does not answer, or refuses it.
    """
    mark = text.partition("\n")[0].strip()
    if not (mark.startswith("<!--") and mark.endswith("-->")):
        raise RequestError(
            "It does not begin with a line to find it by; write it with modeldyno check --markdown."
        )
    body = {"body": text if len(text) <= _LONGEST else f"{text[:_LONGEST]}\n\n(cut)"}
    for each in _known(thread):
        if str(each.get("body") or "").startswith(mark):
            _asked(thread, thread.change, thread.one.format(each["id"]), body)
            return f"brought the comment {each['id']} on {thread.forge} up to date"
    made = _asked(thread, "POST", thread.comments, body)
    return f"posted the comment {made['id']} on {thread.forge}"


def _known(thread: Thread) -> Iterator[dict[str, Any]]:
    """Give the comments that are there, the oldest first."""
    for page in range(1, _PAGES + 1):
        found = _asked(thread, "GET", f"{thread.comments}?per_page={_PAGE}&page={page}")
        yield from found
        if len(found) < _PAGE:
            return


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: a token is for the server that was named."""

    def redirect_request(self, *_words: Any) -> None:
        """Let it be the error that it is here."""


def _asked(thread: Thread, method: str, url: str, body: dict[str, str] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {**thread.headers, "Content-Type": "application/json", "User-Agent": "modeldyno"}
    request = urllib.request.Request(url, data=data, headers=headers, method=method)  # noqa: S310 - see _root
    try:
        with urllib.request.build_opener(_Stay).open(request, timeout=_PATIENCE) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        error.close()
        raise RunFailed(f"{thread.forge} refused the comment: {error.code} {error.reason}.") from None
    except (OSError, ValueError) as error:
        raise RunFailed(f"{thread.forge} did not take the comment: {error}.") from error
