"""MLflow's client, and what its errors say."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from tests.support.packages import skip_module_without

from modeldyno.base.errors import RequestError
from modeldyno.engine.environment.mlflow_client import TimedClient, local_uri, mlflow_client

if TYPE_CHECKING:
    from pathlib import Path

skip_module_without("mlflow")


def test_a_directory_stands_for_the_database_in_it(tmp_path: Path) -> None:
    assert local_uri(str(tmp_path / "runs")) == f"sqlite:///{tmp_path}/runs/mlflow.db"
    assert (tmp_path / "runs").is_dir()


def test_a_uri_is_taken_as_it_is() -> None:
    assert local_uri("http://host:5000") == "http://host:5000"


@pytest.mark.parametrize("scheme", ["sqlite:///", "file://", ""])
def test_a_store_that_is_not_there_is_not_made_by_reading(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"{scheme}{tmp_path}/none")

    with (
        pytest.raises(RequestError, match=r"no store of MLflow at .*/none; set MLFLOW_TRACKING_URI"),
        mlflow_client(None, "it"),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_what_mlflow_says_is_one_sentence_that_names_the_store() -> None:
    with (
        pytest.raises(RequestError, match=r"^MLflow cannot use nosuch: \S[^\n]*$"),
        mlflow_client("nosuch://x", "nosuch") as client,
    ):
        client.search_registered_models()


class Endless:
    """A client whose answers never come."""

    where = "there"

    def search(self, name: str) -> str:
        """Answer, or wait."""
        if name == "slow":
            threading.Event().wait()
        if name == "wrong":
            raise ValueError(name)
        return name.upper()


def test_an_answer_of_mlflow_has_a_time_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the store sends meanwhile; errors of MLflow are its own."""
    monkeypatch.setattr("modeldyno.engine.environment.mlflow_client._PATIENCE", 0.2)
    client = TimedClient(Endless(), "http://host")

    assert client.where == "there"
    assert client.search("a") == "A"
    with pytest.raises(ValueError, match="wrong"):
        client.search("wrong")
    with pytest.raises(RequestError, match=r"^MLflow cannot use http://host: no answer within 0\.2 s\.$"):
        client.search("slow")
