"""Documents from Python: show, report, export, import, list, tag and remove them, and what a result says."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from modeldyno.base import codec
from modeldyno.base import plugins as installed
from modeldyno.base.document import Document, StoredDocument
from modeldyno.base.errors import RequestError
from modeldyno.base.kinds import kind_of
from modeldyno.base.metrics.constraints import Constraint
from modeldyno.base.result.result import Result
from modeldyno.comparison import pr_comment
from modeldyno.comparison.document import render_comment
from modeldyno.engine.trace.carbon import Emission, with_carbon
from modeldyno.exchange import import_ as documents_import
from modeldyno.exchange.export import export_to
from modeldyno.exchange.import_ import reconcile as reconcile_file
from modeldyno.exchange.jobs import read_job_schema
from modeldyno.exchange.verify import verify as verify_document
from modeldyno.profiling.api.error_wording import reword_errors
from modeldyno.profiling.api.profile import as_tuple, result_or_raise, store_if
from modeldyno.profiling.findings.rules import findings as find_findings
from modeldyno.profiling.run import judge_result
from modeldyno.reports.write import write_report
from modeldyno.stores import catalog
from modeldyno.stores.lookup import find_any
from modeldyno.sweeps import schema as sweep_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.base.plugins import ListedPlugin
    from modeldyno.base.report.figure_checks import Recomputation
    from modeldyno.comparison.change.gate_report import GateReport
    from modeldyno.exchange.reconciliation import Reconciliation
    from modeldyno.profiling.findings.finding import Finding
    from modeldyno.stores.catalog import RemovedDocument
    from modeldyno.stores.interface import ConclusionEntry, Entry, OldDocument, StudyEntry
    from modeldyno.sweeps.study.study import Study

_SCHEMAS = {"result": codec.schema, "sweep": sweep_schema.schema}


Kind = TypeVar("Kind", bound=StoredDocument)


@overload
def read(source: str | Path) -> StoredDocument: ...


@overload
def read(source: str | Path, kind: type[Kind]) -> Kind: ...


def read(source: str | Path, kind: type[Any] | None = None) -> Any:
    """Read a saved document of any kind from a file, or from the store by id, prefix, tag or name.

    Args:
        source: a file that ``save`` or ``--json`` wrote, or a name in the store.
        kind: the only kind that is accepted, such as `Study`; a type checker then knows what is returned.

    Returns:
        The Result, Study, Comparison, LoadCurve, Capacity, Conversion or Explanation.

    Raises:
        RequestError: there is none, it is of another kind, or it cannot be read.
    """
    document = find_any(str(source))
    if kind is not None and not isinstance(document, kind):
        raise RequestError(f"{source} is a {kind_of(document).name}; a {kind.__name__} is expected.")
    return document


@reword_errors
def show(
    result: str | Path | StoredDocument, *, carbon: str | None = None, power: str | None = None
) -> StoredDocument:
    """Return any saved document, as ``modeldyno show`` shows it.

    Args:
        result: a file, or an id, the beginning of one, a tag or a name of the store; or a document.
        carbon: intensity of the grid, such as ``"400g/kWh"``: a Result then has the metric ``carbon``, the
            grams of CO2 equivalent of 1,000 inferences.
        power: power to assume for `carbon` where none was read, such as ``"65W"``.

    Returns:
        The Result, Study, Comparison, LoadCurve or Capacity. Of a Result, ``result["latency.p99"]`` is a
        number in base units, ``result.ask("latency.p99")`` has its interval, ``result.judge`` takes a bound.

    Raises:
        RequestError: there is none, it cannot be read, or `carbon` is asked of what is no Result.
    """
    emission = Emission.parse(carbon, power)
    document = find_any(str(result)) if isinstance(result, str | Path) else result
    if emission is None:
        return document
    if not isinstance(document, Result):
        raise RequestError("`carbon` applies to a result; show one of its results.")
    return with_carbon(document, emission)


@reword_errors
def report(
    documents: Document | str | Path | Sequence[Document | str | Path],
    output: str | Path,
    *,
    require: str | Sequence[str] = (),
    chart: str | None = None,
    configurations: str | Sequence[str] = (),
    plots: str | Sequence[str] = (),
    pictures: str | Path | None = None,
    fields: str | Sequence[str] = (),
) -> Path:
    """Write documents as a report, as ``modeldyno report`` does.

    Args:
        documents: one document or several: what a function of ModelDyno returned, a file, or an id, tag or
            name of the store. Several go into one file.
        output: the file; its suffix is the format: .html .pdf .md, only the numbers: .csv .json, or one
            chart of one document: .svg .png
        require: bounds to judge one Result by, such as ``"latency.p99 <= 50ms"``.
        chart: the chart of a picture, by its title or a part of it; the first one if None.
        configurations: of a study, only these, in detail: ``"text_3"``, ``"3"`` or ``"default"``.
        plots: of a study, charts of your own, such as ``"x=latency.p99,y=throughput"``; `x` may be an axis,
            such as ``concurrency``, and ``,title=TEXT`` and ``,monotonic`` may follow.
        pictures: a directory for every chart of the document as .svg, besides the file.
        fields: columns of a .csv, in this order: ``"model,concurrency,throughput"``; one that was not
            measured is empty.

    Returns:
        The path of the file.

    Raises:
        RequestError: a document or its chart is not there, or the format cannot hold it.
        MissingExtra: the format needs a program or a package that is not installed.
    """
    several = [documents] if isinstance(documents, Document | str | Path) else list(documents)
    write_report(
        [_find(document) for document in several],
        Path(output),
        as_tuple(require, "require"),
        chart=chart,
        configurations=as_tuple(configurations, "configurations"),
        plots=as_tuple(plots, "plots"),
        pictures=None if pictures is None else Path(pictures),
        fields=as_tuple(fields, "fields"),
    )
    return Path(output)


@reword_errors
def export(document: Result | Study | str | Path, to: str | Sequence[str]) -> tuple[str, ...]:
    """Export a document to other tools, as ``modeldyno export`` does.

    Args:
        document: a Result or a Study; a file, or an id, tag or name of the store. The trials of a study come
            from the store.
        to: ``TOOL:TARGET`` once or several times: ``"mlflow:URI"``, ``"tensorboard:DIR"``, ``"wandb:DIR"``,
            ``"perfetto:FILE"``, ``"prometheus:FILE"``. All are checked before the first is written.

    Returns:
        Where it is, for each target.

    Raises:
        RequestError: there is no such document or tool, or it cannot be written there.
        MissingExtra: the package of the tool is not installed.
    """
    named = str(document) if isinstance(document, Path) else document
    return tuple(export_to(named, as_tuple(to, "to")))


@reword_errors
def import_results(
    file: str | Path,
    *,
    tool: str | None = None,
    require: str | Sequence[str] = (),
    store: bool = True,
    tags: str | Sequence[str] = (),
) -> tuple[Result, ...]:
    """Import measurements of another load generator, as ``modeldyno import`` does.

    Args:
        file: written by AIPerf, GuideLLM, MLPerf LoadGen, perf_analyzer or vLLM's bench.
        tool: the tool that wrote it, ``--from``: aiperf, guidellm, loadgen, perf_analyzer or vllm; by default
            it is detected.
        require: bounds, such as ``"latency.p99 <= 50ms"``.
        store: keep the Results in the store.
        tags: names by which `read` and the command line find them again.

    Returns:
        A Result for each load in the file; the same file gives the same ids.

    Raises:
        RequestError: the file cannot be read, or no known tool wrote it.
        BoundBroken: a bound of `require` is broken; the Result is the exception's ``result``.
    """
    constraints = tuple(map(Constraint.parse, as_tuple(require, "require")))
    outcomes = [judge_result(result, constraints) for result in documents_import.read(Path(file), tool)]
    for outcome in outcomes:
        store_if(outcome.result, condition=store, tags=tags)
    return tuple(result_or_raise(outcome) for outcome in outcomes)


@reword_errors
def list_results(
    *,
    name: str | None = None,
    tag: str | None = None,
    where: str | None = None,
    limit: int = catalog.LISTED,
) -> tuple[Entry | StudyEntry | ConclusionEntry, ...]:
    """List stored documents, as ``modeldyno list`` does.

    Args:
        name: only models of this name.
        tag: only Results with this tag.
        where: only Results that match, such as ``"latency.p99 < 20ms and (batch_size = 8 or failed)"``: signs
            ``= != < <= > >=``, and ``~`` for text that contains another; names of metrics with a statistic,
            of settings, and name, tag, backend, framework, device, processor, gpu, created and failed.
        limit: maximum number of each kind.

    Returns:
        Entries with ``id``, ``name``, ``created`` (ISO 8601, UTC) and ``headline``: first the Results, then
        the studies, then comparisons and load series, each newest first. `show` returns a document by its id.

    Raises:
        RequestError: the limit is below 1; `where` cannot be read, or names what no stored Result has.
        StoreError: the store cannot be read.
    """
    return catalog.list_documents(name=name, tag=tag, limit=limit, where=where).entries


@reword_errors
def tag(result: str | Result, tags: str | Sequence[str], *, remove: bool = False) -> Entry:
    """Give a stored Result tags by which it is found, as ``modeldyno tag`` does.

    Args:
        result: an id or its beginning, a tag, or a stored Result.
        tags: one tag or several.
        remove: remove the tags instead.

    Returns:
        The entry of the Result with all its ``tags``.

    Raises:
        RequestError: there is no such Result.
    """
    return catalog.change_tags(_name_of(result), as_tuple(tags, "tags"), remove=remove)


@reword_errors
def rm(results: StoredDocument | str | Sequence[StoredDocument | str]) -> tuple[RemovedDocument, ...]:
    """Remove documents from the store, as ``modeldyno rm`` does; with a study, also its trials.

    Args:
        results: ids or their beginnings, tags of one Result, names of studies, or stored documents. All are
            looked up before the first is removed. With a comparison or a load series, its Results stay.

    Returns:
        For each its ``id``, and the branches whose baseline it was as ``baselines``.

    Raises:
        RequestError: one of them is not there, or a tag belongs to several Results.
    """
    several = [results] if isinstance(results, StoredDocument | str) else list(results)
    return tuple(catalog.remove_documents([_name_of(item) for item in several]))


@reword_errors
def prune(before: str, *, keep: int = catalog.KEPT_OF_NAME, dry_run: bool = False) -> tuple[OldDocument, ...]:
    """Remove old documents that nothing refers to, as ``modeldyno prune`` does.

    What has a tag, is a baseline, belongs to a study, is a figure of a registered model or is attached to one
    stays.

    Args:
        before: older ones: ``"90 days ago"``, or a time of UTC such as ``"2026-09-01"``.
        keep: so many of the newest of each name and backend stay.
        dry_run: remove nothing.

    Returns:
        The ``id`` of each, and its ``size`` in the store, in bytes.

    Raises:
        RequestError: it is no time.
        StoreError: the store cannot be written.
    """
    if keep < 0:
        raise RequestError(f"{keep} results cannot stay; give 0 or more.")
    return catalog.prune_documents(before, keep=keep, dry_run=dry_run)


@reword_errors
def comment(file: str | Path | GateReport) -> str:
    """Post the verdict of a gate on a pull or merge request, as ``modeldyno comment`` does.

    The request is that of this pipeline; the comment of an earlier run is replaced. It needs
    GITHUB_TOKEN or GITLAB_TOKEN in the environment.

    Args:
        file: what `gate` or `check` returned, or a file written by ``.save("comment.md")`` or ``--markdown``.

    Returns:
        What was done, with the address of the comment.

    Raises:
        RequestError: the file cannot be read, or this is no pipeline of a pull or merge request.
        RunFailed: the server refused it.
    """
    text = (
        codec.read_document_bytes(Path(file)).decode("utf-8", "replace")
        if isinstance(file, str | Path)
        else render_comment(file)
    )
    return pr_comment.post_comment(text, pr_comment.CommentThread.of(os.environ))


@reword_errors
def verify(document: StoredDocument | str | Path) -> Recomputation:
    """Recompute every figure, verdict and doubt of a document, as ``modeldyno verify`` does.

    Args:
        document: a file, or an id, the beginning of one, a tag or a name of the store. Of a document that a
            function of ModelDyno returned, the figures are recomputed, but it has no digest yet.

    Returns:
        Whether the document ``.holds``; ``.wrong`` figures with both values, ``.verified`` their number,
        ``.kept`` what cannot be recomputed, ``.digest`` whether it was changed after it was written.

    Raises:
        RequestError: there is no such document.
    """
    return verify_document(str(document) if isinstance(document, str | Path) else document)


@reword_errors
def reconcile(
    result: Result | str | Path, files: str | Path | Sequence[str | Path], *, tool: str | None = None
) -> tuple[Reconciliation, ...]:
    """Split the differences between a load and what other load generators report of the same server.

    As ``modeldyno reconcile`` does.

    Args:
        result: a Result of `load`, a file, or an id or tag of the store.
        files: what `import_results` reads, one or several.
        tool: the tool that wrote them, ``--from``; by default it is recognised.

    Returns:
        A Reconciliation for each load in the files: ``.rows`` has the difference of each figure, in parts.

    Raises:
        RequestError: there is no such Result, or a file is of no known tool or damaged.
    """
    ours = _result(result)
    paths = [files] if isinstance(files, str | Path) else list(files)
    return tuple(each for path in paths for each in reconcile_file(ours, Path(path), tool))


@reword_errors
def findings(result: Result | str | Path) -> tuple[Finding, ...]:
    """Return what may make a model faster or smaller, as ``modeldyno show --findings`` does.

    Args:
        result: a Result, a file, or an id or tag of the store.

    Returns:
        The findings, each with its evidence, estimated saving and what to try; empty if there is none.

    Raises:
        RequestError: there is no such Result.
    """
    stored = _result(result)
    return find_findings(stored, installed.knobs(stored.job.backend))


@reword_errors
def list_plugins(name: str | None = None) -> tuple[ListedPlugin, ...]:
    """List plugins, the knobs of a backend, or all metrics, as ``modeldyno plugins list`` does.

    Args:
        name: a kind of plugin (``"probes"``), a backend (``"onnxruntime"``) or ``"metrics"``; all kinds if
            None.

    Returns:
        Entries with ``kind``, ``name`` and ``sentence``; those of a backend have the ``knob``.

    Raises:
        RequestError: there is no backend or kind of plugin of this name.
    """
    return installed.list_plugins(name)


@reword_errors
def schema(document: str = "result") -> dict[str, Any]:
    """Return a JSON Schema, as ``modeldyno schema`` prints it.

    Args:
        document: ``"result"``, ``"sweep"`` for a sweep file, ``"job"`` for a file of jobs, or a command,
            such as ``"profile"``, for one of its jobs.

    Raises:
        RequestError: there is no schema of this name.
    """
    if document in _SCHEMAS:
        return _SCHEMAS[document]()
    try:
        return read_job_schema(document)
    except subprocess.CalledProcessError:
        names = ", ".join((*_SCHEMAS, "job"))
        raise RequestError(f"There is no schema of '{document}'; it is {names} or a command.") from None


def _find(document: Any) -> Any:
    """Return a document, or the one of a file or a name."""
    return find_any(str(document)) if isinstance(document, str | Path) else document


def _result(document: Result | str | Path) -> Result:
    stored = _find(document)
    if not isinstance(stored, Result):
        raise RequestError(f"'{document}' is no result; give the id of one.")
    return stored


def _name_of(document: StoredDocument | str) -> str:
    return document if isinstance(document, str) else document.id
