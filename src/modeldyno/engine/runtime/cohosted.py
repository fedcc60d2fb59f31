"""Additional models hosted on the measured model's server: load each, host it, call it once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.job.load_spec import Load
from modeldyno.base.result.multi_model import with_model_scope
from modeldyno.base.result.result import Event
from modeldyno.engine.interfaces.probe import ProbeContext
from modeldyno.engine.runtime.session_setup import (
    assume_input_sizes,
    first_call,
    fit_prompts,
    identity,
    import_frameworks,
    load_model,
    payload_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from modeldyno.base.job.job import Job
    from modeldyno.base.result.result import Environment
    from modeldyno.engine.interfaces.session import Session
    from modeldyno.engine.runtime.events import RunStage

_SHOWN = 19
"""Characters of a digest that are shown."""


@dataclass(slots=True)
class CoHostedModels:
    """The additional models of a server, each ready to be put under load."""

    events: list[Event] = field(default_factory=list)
    subjects: dict[str, ProbeContext] = field(default_factory=dict)

    def with_loads(self, job: Job, interrupted: Callable[[], bool]) -> tuple[tuple[str, ProbeContext], ...]:
        """Return them with the loads of a Job."""
        loads = {spec.name: spec.load for spec in job.beside}
        return tuple(
            (name, replace(subject, load=loads[name], interrupted=interrupted))
            for name, subject in self.subjects.items()
        )


def load_cohosted(
    job: Job, session: Session, place: Environment, stage: RunStage, stack: ExitStack
) -> CoHostedModels:
    """Have the server of a session load all models in `job.beside`.

    Raises:
            RequestError: the server cannot host more models, or one of them cannot be loaded.
    """
    guests, software = CoHostedModels(), dict(place.software)
    for spec in job.beside:
        loader, backend, name = (
            plugins.loader(spec.model.scheme),
            plugins.backend(job.backend),
            str(spec.name),
        )
        with stage(f"load {name}"):
            import_frameworks(loader.requires, spec)
            model = load_model(loader.load, spec)
            model = replace(assume_input_sizes(spec, model, spec.inputs), identity=identity(spec, model))
        payload = payload_of(spec, model, backend)
        with stage(f"open {name}"):
            guest = stack.enter_context(session.host(model, spec.config))
        with stage(f"first call {name}"):
            opened = fit_prompts(spec, first_call(guest, payload, model, stage, job.load or Load()), stage)
            payload = opened.payload
        guests.events += [with_model_scope(name, event) for event in opened.events]
        guests.subjects[name] = ProbeContext(
            model=model,
            session=guest,
            calls=opened.calls,
            feeds=payload.feeds,
            samples=payload.samples,
            streams=payload.streams,
            first_words=payload.first_words,
            primed=payload.primed,
        )
        software[f"model {name}"] = f"{model.identity.framework} {model.identity.digest[:_SHOWN]}"
    if job.beside:
        guests.events.append(replace(place, software=software))
    return guests
