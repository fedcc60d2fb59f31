"""Options that users add to those of a server's container."""

from __future__ import annotations

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.serving.servers.container_options import container_options, option_words


def test_each_knob_is_an_option_of_the_program() -> None:
    """Underscores are hyphens, pairs have their name in the knob, a JSON list is several values."""
    options = container_options(
        {
            "launch": "docker",
            "container.shm_size": "2g",
            "container.env.A": "1",
            "container.env.B": "x=y",
            "container.label.team": "ml",
            "container.volume": '["/a:/b:ro", "/c:/d"]',
            "container.mount": "type=bind,source=/a,target=/b",
            "container.read_only": True,
        }
    )

    assert option_words(options) == [
        "--shm-size=2g", "--env=A=1", "--env=B=x=y", "--label=team=ml", "--volume=/a:/b:ro", "--volume=/c:/d",
        "--mount=type=bind,source=/a,target=/b", "--read-only=true",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "knob", ["container.name", "container.rm", "container.publish", "container.entrypoint"]
)
def test_what_is_ours_is_refused(knob: str) -> None:
    """Without these a container could not be found, reached or ended."""
    with pytest.raises(RequestError, match="itself; leave out"):
        container_options({knob: "x"})


@pytest.mark.parametrize("knob", ["container.-v", "container.shm size", "container.volume.a", "container."])
def test_what_is_no_option_is_refused(knob: str) -> None:
    """The answer says how one is written."""
    with pytest.raises(RequestError, match="is no option of a container"):
        container_options({knob: "x"})
