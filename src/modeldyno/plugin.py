"""All that the author of a plugin imports: the base of each kind, and the values that they take and give.

A plugin is an object of a subclass of the base, or a module with its members, named by an entry point of the
group ``modeldyno.<kind>s``. The base documents every member, and has a default for what a plugin may leave
out; what a module leaves out has that default, too. `modeldyno.testing` has a conformance suite for each
kind, and ``examples/plugins`` of the repository is a package with one plugin of each.
"""

from __future__ import annotations

from modeldyno.base.errors import (
    CannotRunHere,
    MissingExtra,
    ModelDynoError,
    RequestError,
    StoreError,
    TrustRequired,
)
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.knob import BATCH_SIZE, Knob, KnobValue
from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.job.model_ref import ModelIdentity, ModelRef
from modeldyno.base.metrics.constraints import Judgement, Verdict
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import (
    Distribution,
    Interval,
    Measurement,
    observed_number,
    ratio_number,
)
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.metrics.metric import Better, MetricRow
from modeldyno.base.plugins import store as open_store
from modeldyno.base.report.blocks import Block, Heading, Notice, Table
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.base.result.result import Artifact, Failure, FailureKind, Result
from modeldyno.base.stats.units import (
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
from modeldyno.conversion.interface import ConversionSource, ConvertedFile, Converter
from modeldyno.engine.interfaces.backend import Backend
from modeldyno.engine.interfaces.probe import Pass, Probe, ProbeContext, ProbeOutput
from modeldyno.engine.interfaces.request_target import Endpoint, Reply, ServerInfo, Target, Transport
from modeldyno.engine.interfaces.sampler import Sampler, Watch
from modeldyno.engine.interfaces.session import (
    CanGenerate,
    CanTrain,
    HasLayers,
    HasMemory,
    HasOperators,
    LocalSession,
    RequestSession,
    ServedSession,
    Session,
    ThreadSession,
)
from modeldyno.exchange.exporters.exported_numbers import Figure, figures, labels
from modeldyno.exchange.interface import Exporter, Importer
from modeldyno.models.flops import Count, Formula
from modeldyno.models.interface import (
    Executes,
    Feed,
    Form,
    Loader,
    Model,
    SourceKind,
)
from modeldyno.models.load_stages import WatchStage
from modeldyno.models.loaders.digest import digest_files, digest_parts, read_head
from modeldyno.models.static.graph import Op
from modeldyno.models.static.weights import Weight
from modeldyno.reports.interface import Content, Reporter
from modeldyno.serving.clients.messages import (
    encode_json,
    get_target,
    http_target,
    json_object_or_empty,
    no_tokens,
    post_request,
    read_json_object,
)
from modeldyno.serving.clients.tensors import from_values, to_lists
from modeldyno.serving.interfaces.client import Client
from modeldyno.serving.load.foreign_load import (
    ForeignFile,
    ForeignLoad,
    ForeignRequest,
    definition_doubt,
    reported_value,
)
from modeldyno.stores.interface import OpensStores, Store
from modeldyno.sweeps.interface import Strategy
from modeldyno.sweeps.strategies.study_history import open_points
from modeldyno.sweeps.study.search_space import Point
from modeldyno.sweeps.study.study import Study, Trial, TrialRequest

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
    "CanGenerate",
    "CanTrain",
    "CannotRunHere",
    "Client",
    "Content",
    "ConversionSource",
    "ConvertedFile",
    "Converter",
    "Count",
    "Distribution",
    "Doubt",
    "Endpoint",
    "Executes",
    "Exporter",
    "Failure",
    "FailureKind",
    "Feed",
    "Figure",
    "ForeignFile",
    "ForeignLoad",
    "ForeignRequest",
    "Form",
    "Formula",
    "HasLayers",
    "HasMemory",
    "HasOperators",
    "Heading",
    "Importer",
    "InputSpec",
    "Interval",
    "Judgement",
    "Knob",
    "KnobValue",
    "Load",
    "Loader",
    "LocalSession",
    "Measurement",
    "MetricRow",
    "MissingExtra",
    "Model",
    "ModelDynoError",
    "ModelIdentity",
    "ModelRef",
    "Notice",
    "Op",
    "OpensStores",
    "Pass",
    "Plan",
    "Point",
    "Probe",
    "ProbeContext",
    "ProbeOutput",
    "Reply",
    "Reporter",
    "RequestError",
    "RequestOutcome",
    "RequestSession",
    "Result",
    "Sampler",
    "ServedSession",
    "ServerInfo",
    "Session",
    "SourceKind",
    "Store",
    "StoreError",
    "Strategy",
    "Study",
    "Table",
    "Target",
    "ThreadSession",
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
