"""Post a gate's report as a comment on a pull or merge request, and update it on later runs.

The comment is found again by its first line, an invisible HTML comment. The request is identified from the
environment variables that pipelines of GitHub and GitLab set.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from modeldyno.base.errors import RequestError, RunFailed
from modeldyno.base.system.timed_answer import TimedHttp, TimedHttps, read_body

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MAX_LENGTH = 65_000
"""Longest comment in characters that GitHub accepts; GitLab accepts more."""
_PAGE, _PAGES = 100, 50
"""Comments per page, and pages that are searched."""
_TIMEOUT = 30.0
"""Seconds to wait for a response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommentThread:
    """API endpoints for the comments of a request."""

    forge: str
    comments: str
    """URL that lists them and accepts new ones."""
    one: str
    """URL of a single comment, with ``{}`` for its id."""
    change: str
    """HTTP method that replaces a comment."""
    headers: dict[str, str]

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> CommentThread:
        """Identify the request from the environment of a pipeline.

        Raises:
            RequestError: this is no pipeline of a request, or there is no token.
        """
        if "GITHUB_REPOSITORY" in environment:
            return _github(environment)
        if "CI_MERGE_REQUEST_IID" in environment:
            return _gitlab(environment)
        raise RequestError(
            "There is no pull or merge request to comment on: neither GITHUB_REPOSITORY nor "
            "CI_MERGE_REQUEST_IID is set, as they are in pipelines of GitHub and GitLab."
        )


def _github(environment: Mapping[str, str]) -> CommentThread:
    token = _required_variable(environment, "GITHUB_TOKEN", "a token that may write pull requests")
    number = environment.get("PULL_REQUEST") or _pull_request_number(environment)
    if not number:
        raise RequestError("This run of GitHub belongs to no pull request; set PULL_REQUEST to its number.")
    root = f"{_checked_url(environment.get('GITHUB_API_URL', 'https://api.github.com'))}/repos"
    repository = quote(environment["GITHUB_REPOSITORY"])
    return CommentThread(
        forge="GitHub",
        comments=f"{root}/{repository}/issues/{quote(number, safe='')}/comments",
        one=f"{root}/{repository}/issues/comments/{{}}",
        change="PATCH",
        headers={"Authorization": f"Bearer {token}", "Accept": "application/vnd.github+json"},
    )


def _pull_request_number(environment: Mapping[str, str]) -> str:
    """Find the number of the pull request in the event, or in the name of the checked-out ref."""
    event = Path(environment.get("GITHUB_EVENT_PATH", ""))
    if event.is_file():
        pull_request = json.loads(event.read_text(encoding="utf-8")).get("pull_request") or {}
        if pull_request.get("number"):
            return str(pull_request["number"])
    match = re.fullmatch(r"refs/pull/(\d+)/\w+", environment.get("GITHUB_REF", ""))
    return match[1] if match else ""


def _gitlab(environment: Mapping[str, str]) -> CommentThread:
    token = _required_variable(environment, "GITLAB_TOKEN", "an access token with the scope api")
    root = _checked_url(environment.get("CI_API_V4_URL", "https://gitlab.com/api/v4"))
    project = quote(_required_variable(environment, "CI_PROJECT_ID", "the number of the project"), safe="")
    request = quote(environment["CI_MERGE_REQUEST_IID"], safe="")
    notes = f"{root}/projects/{project}/merge_requests/{request}/notes"
    return CommentThread(
        forge="GitLab",
        comments=notes,
        one=f"{notes}/{{}}",
        change="PUT",
        headers={"PRIVATE-TOKEN": token},
    )


def _required_variable(environment: Mapping[str, str], name: str, what: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise RequestError(f"{name} is not set; give {what}.")
    return value


def _checked_url(url: str) -> str:
    if urlsplit(url).scheme not in {"http", "https"}:
        raise RequestError(f"'{url}' is not the URL of a forge; it must begin with https://.")
    return url.rstrip("/")


def post_comment(text: str, thread: CommentThread) -> str:
    """Post a comment, or replace that of an earlier run with the same first line; return what was done.

    Raises:
        RequestError: the text has no first line by which to find it again.
        RunFailed: the forge does not respond, or refuses it.
    """
    mark = text.partition("\n")[0].strip()
    if not (mark.startswith("<!--") and mark.endswith("-->")):
        raise RequestError(
            "The text has no marker line by which to find it again; write it with modeldyno check --markdown."
        )
    body = {"body": text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}\n\n(cut)"}
    for existing in _comments(thread):
        if str(existing.get("body") or "").startswith(mark):
            _call_api(thread, thread.change, thread.one.format(existing["id"]), body)
            return f"updated the comment {existing['id']} on {thread.forge}"
    created = _call_api(thread, "POST", thread.comments, body)
    return f"posted the comment {created['id']} on {thread.forge}"


def _comments(thread: CommentThread) -> Iterator[dict[str, Any]]:
    """Yield the existing comments, the oldest first."""
    for page in range(1, _PAGES + 1):
        comments = _call_api(thread, "GET", f"{thread.comments}?per_page={_PAGE}&page={page}")
        yield from comments
        if len(comments) < _PAGE:
            return


class _TimedHandler(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Gives the whole answer a time."""

    def http_open(self, request: urllib.request.Request) -> Any:
        """Open an address of HTTP."""
        return self.do_open(TimedHttp, request)

    def https_open(self, request: urllib.request.Request) -> Any:
        """Open one of HTTPS."""
        return self.do_open(TimedHttps, request)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, because the token is meant for the named server only."""

    def redirect_request(self, *_arguments: Any) -> None:
        """Return None, so that the redirect is raised as an error."""


def _call_api(thread: CommentThread, method: str, url: str, body: dict[str, str] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {**thread.headers, "Content-Type": "application/json", "User-Agent": "modeldyno"}
    request = urllib.request.Request(url, data=data, headers=headers, method=method)  # noqa: S310 - see _checked_url
    try:
        opener = urllib.request.build_opener(_NoRedirects, _TimedHandler)
        with opener.open(request, timeout=_TIMEOUT) as answer:
            return json.loads(read_body(answer))
    except urllib.error.HTTPError as error:
        error.close()
        raise RunFailed(f"{thread.forge} refused the comment: {error.code} {error.reason}.") from None
    except (OSError, HTTPException, ValueError, RecursionError) as error:
        raise RunFailed(f"{thread.forge} did not take the comment: {error}.") from error
