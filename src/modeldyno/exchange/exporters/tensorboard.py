"""TensorBoard: event files, one directory per result, with scalars and hyper-parameters (HParams plugin)."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.exchange.exporters.exported_numbers import circumstances, figures, settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modeldyno.base.result.result import Result
    from modeldyno.sweeps.study.study import Study

requires = ("tensorboard",)


def export(document: Result, target: str) -> str:
    """Write the events of one result into its own directory."""
    folder = Path(target) / document.id
    _write(document, folder)
    return str(folder)


def export_study(study: Study, results: Mapping[str, Result], target: str) -> str:
    """Write the events of each trial that has a result into one directory per study."""
    folder = Path(target) / study.id
    for trial in study.trials:
        if (result := results.get(trial.result)) is not None:
            _write(result, folder / f"trial-{trial.number:04}")
    return str(folder)


def _write(result: Result, folder: Path) -> None:
    from tensorboard.compat.proto.event_pb2 import Event  # slow to import
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.plugins.hparams import summary_v2
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    if any(folder.glob("events.out.tfevents.*")):
        return  # already exported: the same id is the same result
    timestamp = datetime.fromisoformat(result.created).timestamp()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"Cannot make {folder}: {error.strerror}.") from error
    writer = EventFileWriter(str(folder))

    def add(summary: object) -> None:
        writer.add_event(Event(wall_time=timestamp, step=0, summary=summary))

    add(summary_v2.hparams_pb(settings(result), trial_id=result.id, start_time_secs=timestamp))
    for figure in figures(result):
        tag = str(figure.query).replace("@", "/", 1)
        add(Summary(value=[Summary.Value(tag=tag, simple_value=figure.value)]))
    facts = json.dumps(circumstances(result), indent=1).encode()
    plugin = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    tensor = TensorProto(dtype="DT_STRING", string_val=[b"```json\n" + facts + b"\n```"])
    tensor.tensor_shape.dim.add(size=1)
    add(Summary(value=[Summary.Value(tag="modeldyno", metadata=plugin, tensor=tensor)]))
    writer.close()
