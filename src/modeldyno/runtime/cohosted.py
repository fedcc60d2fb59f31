"""Models beside the one that is measured, on the same server: loaded, hosted, and called once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from modeldyno import plugins
from modeldyno.core.load.multi_model import at
from modeldyno.core.result.result import Doubted, Event, Failed, Found, Located
from modeldyno.errors import RequestError
from modeldyno.interfaces import CanHost, Subject
from modeldyno.runtime.session_setup import brought, called, identity, imported, patience, payload_of, sized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import ExitStack

    from modeldyno.core.result.result import Environment
    from modeldyno.core.spec.job import Job
    from modeldyno.interfaces import Session
    from modeldyno.runtime.events import Stage

_SHOWN = 19
"""Characters of a digest that tell it from others."""


@dataclass(slots=True)
class Guests:
    """The models beside, each with what it takes to put it under a load."""

    found: list[Event] = field(default_factory=list)
    subjects: dict[str, Subject] = field(default_factory=dict)

    def under(self, job: Job, interrupted: Callable[[], bool]) -> tuple[tuple[str, Subject], ...]:
        """Give them with the loads of a Job."""
        loads = {each.name: each.load for each in job.beside}
        return tuple(
            (name, replace(subject, load=loads[name], interrupted=interrupted))
            for name, subject in self.subjects.items()
        )


def hosted(job: Job, session: Session, place: Environment, stage: Stage, stack: ExitStack) -> Guests:
    """Have the server of a session load all models beside the Job's own.

    Raises:
        RequestError: it can have no others, or one of them cannot be brought there.
    """
    guests, known = Guests(), dict(place.software)
    for each in job.beside:
        if not isinstance(session, CanHost):
            raise RequestError(f"This server of '{job.backend}' has one model, and no others beside it.")
        loader, backend, name = (
            plugins.loader(each.model.scheme),
            plugins.backend(job.backend),
            str(each.name),
        )
        with stage(f"load {name}"):
            imported((*loader.tools, *loader.requires), each)
            model = brought(loader.load, each)
            model = replace(sized(each, model, each.inputs), identity=identity(each, model))
        payload = payload_of(each, model, backend)
        with stage(f"open {name}"):
            guest = stack.enter_context(session.host(model, each.config))
        with stage(f"first call {name}"):
            opened = called(guest, payload, model, stage, patience=patience(job))
        guests.found += _labelled(name, opened.found)
        guests.subjects[name] = Subject(
            model=model, session=guest, calls=opened.calls, feeds=payload.feeds, samples=payload.samples
        )
        known[f"model {name}"] = f"{model.identity.framework} {model.identity.digest[:_SHOWN]}"
    if job.beside:
        guests.found.append(Located(environment=replace(place, software=known)))
    return guests


def _labelled(name: str, found: Iterable[Event]) -> Iterator[Event]:
    """Tell what was found of a model as that model's; its files have its name in them."""
    for event in found:
        match event:
            case Found(measurement=measurement):
                yield Found(measurement=at(name, measurement))
            case Doubted(doubt=doubt):
                yield Doubted(doubt=at(name, doubt))
            case Failed(failure=failure):
                yield Failed(failure=at(name, failure))
            case _:
                yield event
