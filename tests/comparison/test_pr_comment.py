"""The gate's comment on a pull or merge request, on a fake forge on this machine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.support.fake_forge import TOKEN, Forge, serve_forge

from modeldyno.base.errors import RequestError, RunFailed
from modeldyno.cli import main
from modeldyno.comparison.pr_comment import CommentThread, post_comment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MARK = "<!-- modeldyno: digits -->"


@pytest.fixture
def server() -> Iterator[Forge]:
    """Yield a forge without comments."""
    with serve_forge() as forge:
        yield forge


def github(server: Forge, **more: str) -> dict[str, str]:
    return {
        "GITHUB_REPOSITORY": "us/nets", "GITHUB_API_URL": server.url, "GITHUB_TOKEN": TOKEN,
        "GITHUB_REF": "refs/pull/7/merge", **more,
    }  # fmt: skip


def gitlab(server: Forge, **more: str) -> dict[str, str]:
    return {
        "CI_MERGE_REQUEST_IID": "7", "CI_API_V4_URL": server.url, "CI_PROJECT_ID": "12",
        "GITLAB_TOKEN": TOKEN, **more,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("where", "path", "one"),
    [
        (github, "/repos/us/nets/issues/7/comments", ("PATCH", "/repos/us/nets/issues/comments/1120")),
        (
            gitlab,
            "/projects/12/merge_requests/7/notes",
            ("PUT", "/projects/12/merge_requests/7/notes/1120"),
        ),
    ],
)
def test_a_comment_is_posted_once_and_replaced_from_then_on(
    server: Forge, where: Callable[[Forge], dict[str, str]], path: str, one: tuple[str, str]
) -> None:
    """It is found by its first line among all others, on any page."""
    server.comments += [{"id": 1000 + n, "body": f"looks good {n}"} for n in range(120)]
    thread = CommentThread.of(where(server))

    assert post_comment(f"{MARK}\nfails", thread).startswith("posted the comment 1120 on Git")
    assert post_comment(f"{MARK}\nholds", thread).startswith("updated the comment 1120 on Git")
    assert post_comment("<!-- modeldyno: other -->\nholds", thread).startswith("posted the comment 1121")
    assert [posted["body"] for posted in server.comments[120:]] == [
        f"{MARK}\nholds", "<!-- modeldyno: other -->\nholds",
    ]  # fmt: skip
    assert server.requests[:3] == [("GET", path), ("GET", path), ("POST", path)]
    assert one in server.requests


def test_the_request_is_found_in_the_event(server: Forge, tmp_path: Path) -> None:
    """If the ref names none, the event does; an explicit number has precedence."""
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"pull_request": {"number": 31}}))
    variables = {"GITHUB_EVENT_PATH": str(event), "GITHUB_REF": "refs/heads/main"}

    assert CommentThread.of(github(server, **variables)).comments.endswith("/issues/31/comments")
    assert CommentThread.of(github(server, **variables, PULL_REQUEST="5")).comments.endswith(
        "/issues/5/comments"
    )
    event.write_text("{}")
    with pytest.raises(RequestError, match="belongs to no pull request; set PULL_REQUEST"):
        CommentThread.of(github(server, **variables))


def test_what_cannot_be_is_refused_in_one_sentence(server: Forge) -> None:
    """No pipeline, no token, no URL, and no marker line."""
    with pytest.raises(RequestError, match="no pull or merge request"):
        CommentThread.of({})
    with pytest.raises(RequestError, match="GITHUB_TOKEN is not set"):
        CommentThread.of(github(server, GITHUB_TOKEN=""))
    with pytest.raises(RequestError, match="GITLAB_TOKEN is not set"):
        CommentThread.of(gitlab(server, GITLAB_TOKEN=""))
    with pytest.raises(RequestError, match="not the URL of a forge"):
        CommentThread.of(github(server, GITHUB_API_URL="file:///etc"))
    with pytest.raises(RequestError, match="no marker line by which to find it"):
        post_comment("holds", CommentThread.of(github(server)))
    assert server.requests == []


def test_a_refusal_is_told_without_the_token(server: Forge) -> None:
    """The message has the status, or says that the forge does not respond."""
    with pytest.raises(RunFailed, match="GitHub refused the comment: 403") as raised:
        post_comment(MARK, CommentThread.of(github(server, GITHUB_TOKEN="wrong-token")))
    assert "wrong-token" not in str(raised.value)
    with pytest.raises(RunFailed, match="GitLab did not take the comment"):
        post_comment(MARK, CommentThread.of(gitlab(server, CI_API_V4_URL="http://127.0.0.1:1")))


def test_a_long_comment_is_cut(server: Forge) -> None:
    """Forges limit the length of a comment."""
    post_comment(f"{MARK}\n{'x' * 100_000}", CommentThread.of(github(server)))

    assert len(server.comments[0]["body"]) < 65_536
    assert server.comments[0]["body"].endswith("(cut)")


def test_the_command_posts_a_file(
    server: Forge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It accepts what check and profile write."""
    path = tmp_path / "comment.md"
    path.write_text(f"{MARK}\nholds")
    for name, value in github(server).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as left:
        main(["comment", str(path)])

    assert left.value.code == 0
    assert "posted the comment 1000 on GitHub" in capsys.readouterr().out
