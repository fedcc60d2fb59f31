"""All that the author of a plugin imports: the Protocol of each kind, and the values that they take and give.

A plugin is a module, or any object, with the attributes of its Protocol, named by an entry point of the
group ``modeldyno.<kind>s``. The Protocol says what it must have; the others of its module in
`modeldyno.interfaces` what it may have beside. `modeldyno.testing` has a conformance suite for each kind, and
``examples/plugins`` of the repository is a package with one plugin of each.
"""

from __future__ import annotations

from modeldyno.adapters.clients.messages import (
    encode_json,
    get_target,
    http_target,
    json_object_or_empty,
    no_tokens,
    post_request,
    read_json_object,
)
from modeldyno.adapters.clients.tensors import from_values, to_lists
from modeldyno.adapters.exporters.exported_numbers import Figure, figures, labels
from modeldyno.adapters.loaders.digest import digest_files, digest_parts, read_head
from modeldyno.adapters.strategies.study_history import open_points
from modeldyno.core.load.foreign_load import (
    ForeignFile,
    ForeignLoad,
    ForeignRequest,
    definition_doubt,
    reported_value,
)
from modeldyno.core.load.request_target import Endpoint, Reply, ServerInfo, Target, Transport
from modeldyno.core.metrics.constraints import Judgement, Verdict
from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.metrics.measurement import (
    Distribution,
    Interval,
    Measurement,
    observed_number,
    ratio_number,
)
from modeldyno.core.metrics.measurement_plan import Plan
from modeldyno.core.metrics.metric import Better, MetricRow
from modeldyno.core.report.blocks import Block, Heading, Notice, Table
from modeldyno.core.result.request_outcome import RequestOutcome
from modeldyno.core.result.result import Artifact, Failure, FailureKind, Result
from modeldyno.core.spec.input_spec import InputSpec
from modeldyno.core.spec.knob import BATCH_SIZE, Knob, KnobValue
from modeldyno.core.spec.load_spec import Arrivals, Load
from modeldyno.core.spec.model_ref import ModelIdentity, ModelRef
from modeldyno.core.static.flops import Count, Formula
from modeldyno.core.static.graph import Op
from modeldyno.core.static.weights import Weight
from modeldyno.core.stats.units import (
    BYTES,
    CELSIUS,
    CORES,
    COUNT,
    FRACTION,
    GRAMS,
    HERTZ,
    JOULES,
    RATE,
    SECONDS,
    WATTS,
    format_quantity,
)
from modeldyno.core.study.search_space import Point
from modeldyno.core.study.study import Study, Trial, TrialRequest
from modeldyno.errors import (
    CannotRunHere,
    MissingExtra,
    ModelDynoError,
    RequestError,
    StoreError,
    TrustRequired,
)
from modeldyno.interfaces.backend import (
    Backend,
    CanDeploy,
    ChoosesDevice,
    ConfiguresProcess,
    HasSpace,
    Serves,
    TakesOtherInputs,
)
from modeldyno.interfaces.client import (
    CarriesSequences,
    Client,
    CountsPrompts,
    CountsWork,
    ListsModels,
    NumbersRequests,
    SharesMemory,
    Streams,
)
from modeldyno.interfaces.converter import ConversionSource, ConvertedFile, Converter
from modeldyno.interfaces.exchange import Exporter, ExportsStudies, Importer
from modeldyno.interfaces.load_stages import WatchStage
from modeldyno.interfaces.loader import (
    ComesFromFiles,
    Executes,
    Feed,
    Form,
    HasTools,
    ListsFiles,
    Loader,
    Looks,
    Model,
    SourceKind,
)
from modeldyno.interfaces.probe import ChecksFirst, Pass, Probe, ProbeOutput, Subject
from modeldyno.interfaces.reporter import ChecksTools, DrawsCharts, LaysOut, Reporter, Tabulates
from modeldyno.interfaces.sampler import ReadsServerMetrics, Sampler, Watch
from modeldyno.interfaces.session import CanCall, CanSend, HasDevice, HasDoubts, HasServerStats, Session
from modeldyno.interfaces.store import OpensStores, Store
from modeldyno.interfaces.strategy import Strategy
from modeldyno.plugins import store as open_store

__all__ = [
    "BATCH_SIZE",
    "BYTES",
    "CELSIUS",
    "CORES",
    "COUNT",
    "FRACTION",
    "GRAMS",
    "HERTZ",
    "JOULES",
    "RATE",
    "SECONDS",
    "WATTS",
    "Arrivals",
    "Artifact",
    "Backend",
    "Better",
    "Block",
    "CanCall",
    "CanDeploy",
    "CanSend",
    "CannotRunHere",
    "CarriesSequences",
    "ChecksFirst",
    "ChecksTools",
    "ChoosesDevice",
    "Client",
    "ComesFromFiles",
    "ConfiguresProcess",
    "ConversionSource",
    "ConvertedFile",
    "Converter",
    "Count",
    "CountsPrompts",
    "CountsWork",
    "Distribution",
    "Doubt",
    "DrawsCharts",
    "Endpoint",
    "Executes",
    "Exporter",
    "ExportsStudies",
    "Failure",
    "FailureKind",
    "Feed",
    "Figure",
    "ForeignFile",
    "ForeignLoad",
    "ForeignRequest",
    "Form",
    "Formula",
    "HasDevice",
    "HasDoubts",
    "HasServerStats",
    "HasSpace",
    "HasTools",
    "Heading",
    "Importer",
    "InputSpec",
    "Interval",
    "Judgement",
    "Knob",
    "KnobValue",
    "LaysOut",
    "ListsFiles",
    "ListsModels",
    "Load",
    "Loader",
    "Looks",
    "Measurement",
    "MetricRow",
    "MissingExtra",
    "Model",
    "ModelDynoError",
    "ModelIdentity",
    "ModelRef",
    "Notice",
    "NumbersRequests",
    "Op",
    "OpensStores",
    "Pass",
    "Plan",
    "Point",
    "Probe",
    "ProbeOutput",
    "ReadsServerMetrics",
    "Reply",
    "Reporter",
    "RequestError",
    "RequestOutcome",
    "Result",
    "Sampler",
    "ServerInfo",
    "Serves",
    "Session",
    "SharesMemory",
    "SourceKind",
    "Store",
    "StoreError",
    "Strategy",
    "Streams",
    "Study",
    "Subject",
    "Table",
    "Tabulates",
    "TakesOtherInputs",
    "Target",
    "Transport",
    "Trial",
    "TrialRequest",
    "TrustRequired",
    "Verdict",
    "Watch",
    "WatchStage",
    "Weight",
    "definition_doubt",
    "digest_files",
    "digest_parts",
    "encode_json",
    "figures",
    "format_quantity",
    "from_values",
    "get_target",
    "http_target",
    "json_object_or_empty",
    "labels",
    "no_tokens",
    "observed_number",
    "open_points",
    "open_store",
    "post_request",
    "ratio_number",
    "read_head",
    "read_json_object",
    "reported_value",
    "to_lists",
]
