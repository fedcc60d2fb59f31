"""The probe ``generate`` on a decoder in virtual time: what it counts, shares, keeps and gives up."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.job.probe_options import ProbeOptions
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.result.result import Progressed
from modeldyno.engine.interfaces import probe as probe_interfaces
from modeldyno.engine.interfaces.probe import ProbeContext
from modeldyno.engine.interfaces.session import CanGenerate, LocalSession
from modeldyno.engine.probes import generate
from modeldyno.models.interface import Feed
from modeldyno.testing.fakes import a_model
from modeldyno.testing.probes import ProbeSuite

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

FEED = {"input_ids": np.arange(8).reshape(2, 4)}


@dataclass
class Clock:
    """Time that passes only when somebody takes it."""

    now: float = 0.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now

    def nanoseconds(self) -> int:
        """The same as the innermost loop reads it."""
        return round(self.now * 1e9)


@dataclass
class Script:
    """A decoder that takes a second for each token of the prompt, and half of one for each token after it."""

    clock: Clock
    prompt: int
    count: int
    once: float = 0.0
    """Seconds that each token of the first generation takes beyond that."""
    begun: int = 0
    made: int = 0
    closed: int = 0

    def tokens(self) -> Generator[int]:
        """Generate."""
        self.begun += 1
        self.made = 0
        return self._steps()

    def _steps(self) -> Generator[int]:
        try:
            for place in range(self.count):
                self.clock.now += 0.5 if place else self.prompt
                self.clock.now += self.once if self.begun == 1 else 0.0
                self.made += 1
                yield place
        finally:
            self.closed += 1

    def cache_bytes(self) -> int:
        """Ten bytes for each token of each of two samples, up to a window of six."""
        return 2 * 10 * min(6, self.prompt + self.made - 1)


@dataclass
class Session(LocalSession):
    """Hands out scripts, and refuses prompts of more than a hundred tokens."""

    clock: Clock = field(default_factory=Clock)
    scripts: list[Script] = field(default_factory=list)
    read: list[Feed] = field(default_factory=list)
    once: float = 0.0

    def decoding(self, prompt: Feed, tokens: int) -> Script:
        """Prepare."""
        length = prompt["input_ids"].shape[1] if "input_ids" in prompt else 3
        if length > 100:
            raise RequestError("The prompt is too long.")
        self.read.append(prompt)
        self.scripts.append(Script(clock=self.clock, prompt=length, count=tokens, once=self.once))
        return self.scripts[-1]

    def prepare(self, feed: Feed) -> Callable[[], Any]:
        """Prepare a call, which no test makes."""
        raise NotImplementedError(feed)

    def arrays(self, output: Any) -> Feed:
        """Show the output of a call."""
        raise NotImplementedError(output)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    """A session whose time the probe reads."""
    made = Session()
    monkeypatch.setattr(generate, "perf_counter", made.clock)
    monkeypatch.setattr(generate, "perf_counter_ns", made.clock.nanoseconds)
    monkeypatch.setattr("modeldyno.base.clock.system_seconds", lambda: 0.0)
    monkeypatch.setattr(probe_interfaces, "perf_counter", made.clock)
    return made


def subject(
    session: Session, prompts: tuple[int, ...], generated: tuple[int, ...], **more: Any
) -> ProbeContext:
    """Ask for these lengths."""
    observation = ProbeOptions(prompts=prompts, generated=generated)
    plain = ProbeContext(model=a_model(), session=session, feeds=(FEED,), samples=2, observation=observation)
    return replace(plain, **more)


def measured(subject: ProbeContext, **plan: Any) -> dict[tuple[str, str], Any]:
    """Give the measurements by metric and scope: numbers, and the medians of distributions."""
    measurements = [m for m in generate.measure(subject, Plan(**plan)) if isinstance(m, Measurement)]
    return {
        (m.metric, m.scope): m.value.statistic("p50") if isinstance(m.value, Distribution) else m.value
        for m in measurements
    }


class TestGenerate(ProbeSuite):
    name = "generate"

    @pytest.fixture
    def subject(self) -> ProbeContext:
        """Two lengths of a decoder that takes no time."""
        return subject(Session(), (4, 8), (12,))


def test_each_length_has_its_times_and_rates(session: Session) -> None:
    """The clock of the decoder is what the measurements say, at every length."""
    values = measured(subject(session, (4, 8), (3,)), max_time=10_000.0)

    assert values["time_to_first_token", "prompt=4,generate=3"] == pytest.approx(4.0)
    assert values["time_to_first_token", "prompt=8,generate=3"] == pytest.approx(8.0)
    assert values["time_per_output_token", "prompt=8,generate=3"] == pytest.approx(0.5)
    assert values["inter_token_latency", "prompt=8,generate=3"] == pytest.approx(0.5)
    assert values["token_rate", "prompt=8,generate=3"] == pytest.approx(2 * 3 / 9.0)
    assert values["token_rate", "prompt=8,generate=3,stage=prefill"] == pytest.approx(2.0)
    assert values["token_rate", "prompt=8,generate=3,stage=decode"] == pytest.approx(4.0)


def test_the_prompts_are_as_long_as_asked_for(session: Session) -> None:
    """Tokens of the payload are repeated, and each sample has its own."""
    measured(subject(session, (6,), (2,)))

    assert session.read[0]["input_ids"].tolist() == [[0, 1, 2, 3, 0, 1], [4, 5, 6, 7, 4, 5]]


def test_what_reads_sound_is_measured_by_output_alone(session: Session) -> None:
    """Without tokens to read, the payload is read as it is, once for each length of the output."""
    feed = {"input_features": np.zeros((2, 5, 3))}
    values = measured(subject(session, (4, 8), (2, 3), feeds=(feed,)))

    assert {s for m, s in values if m == "time_to_first_token"} == {"generate=2", "generate=3"}
    assert len(session.scripts) == 2


def test_the_cache_is_that_of_the_last_token(session: Session) -> None:
    """Its bytes at each length, and what a token of a sample adds where the window is not full."""
    values = measured(subject(session, (2, 32), (3, 9)))

    assert values["kv_cache_bytes", "prompt=2,generate=3"] == 2 * 10 * 4
    assert values["kv_cache_bytes", "prompt=32,generate=9"] == 2 * 10 * 6
    assert values["kv_cache_per_token", "measured"] == 10


def test_of_one_token_there_is_no_growth(session: Session) -> None:
    """What a token adds is told by two of them."""
    values = measured(subject(session, (2,), (1,)))

    assert ("kv_cache_bytes", "prompt=2,generate=1") in values
    assert ("kv_cache_per_token", "measured") not in values


def test_all_lengths_share_the_time_of_the_plan(session: Session) -> None:
    """The limit is that of the probe; each length has two sequences at least, even when time is over."""
    measured(subject(session, (4, 4, 8), (3, 5)), max_time=60.0, precision=1e-6)
    at_most = 60.0 + 2 * sum(s.prompt + 0.5 * (s.count - 1) for s in session.scripts)

    assert 60.0 <= session.clock.now <= at_most
    measured(subject(session, (90, 91, 92), (2,)), max_time=1.0)
    assert [s.begun for s in session.scripts[-3:]] == [2, 2, 2]


def test_the_first_generation_of_each_length_is_left_out(session: Session) -> None:
    """What is done once for new lengths is no sample, even when there is time for one more only."""
    session.once = 1000.0
    yielded = list(generate.measure(subject(session, (4, 8), (3,)), Plan(max_time=1.0)))
    gaps = [m.value for m in yielded if isinstance(m, Measurement) and m.metric == "inter_token_latency"]

    assert [g.samples().tolist() for g in gaps if isinstance(g, Distribution)] == [[0.5, 0.5]] * 2
    assert [g.warmup_dropped for g in gaps if isinstance(g, Distribution)] == [2, 2]


def test_what_cannot_be_generated_is_refused_before_anything_is(session: Session) -> None:
    """One prompt that is too long spends no time on the others."""
    with pytest.raises(RequestError):
        measured(subject(session, (4, 101), (2,)))

    assert session.scripts
    assert not any(script.begun for script in session.scripts)


def test_every_generation_is_closed(session: Session) -> None:
    """What a generation holds is given back before the next one begins."""
    measured(subject(session, (4,), (3,)))

    assert session.scripts[0].begun == session.scripts[0].closed > 1


def test_an_interruption_waits_for_no_sequence(session: Session) -> None:
    """Interrupted within the first sequence, there is nothing to tell, and no other length is begun."""
    waiting = subject(session, (4, 8), (50,), interrupted=lambda: session.clock.now > 10)

    assert not measured(waiting)
    assert [s.begun for s in session.scripts] == [1, 0]
    assert session.scripts[0].made < 20


def test_of_sequences_that_were_all_cut_off_there_are_no_times(session: Session) -> None:
    """Interrupted within the second sequence, only what the first one told of the cache is known."""
    values = measured(subject(session, (4, 8), (3,), interrupted=lambda: session.clock.now > 7))

    assert {metric for metric, _ in values} == {"kv_cache_per_token"}


def test_whole_sequences_are_kept_when_interrupted(session: Session) -> None:
    """A sequence that was cut off is left out, those before it are not, and the stop is told."""
    waiting = subject(session, (4, 8), (3,), interrupted=lambda: session.clock.now > 22)
    yielded = list(generate.measure(waiting, Plan(max_time=1000.0)))
    gaps = next(m for m in yielded if isinstance(m, Measurement) and m.metric == "inter_token_latency")

    assert isinstance(gaps.value, Distribution)
    assert gaps.value.stop == "interrupted"
    assert set(gaps.value.samples().tolist()) == {0.5}
    assert len(gaps.value) % 2 == 0
    assert {m.scope for m in yielded if isinstance(m, Measurement)} == {
        "prompt=4,generate=3", "prompt=4,generate=3,stage=prefill", "prompt=4,generate=3,stage=decode",
        "measured",
    }  # fmt: skip
    assert "interrupted" in {d.code for d in yielded if isinstance(d, Doubt)}


def test_requested_percentiles_are_missed_by_name(session: Session) -> None:
    """A percentile that was asked for and is no claim is doubted for each metric, once for all lengths."""
    yielded = generate.measure(subject(session, (4, 8), (3,)), Plan(percentiles=("p99",), max_time=100.0))
    missing = [d.seen for d in yielded if isinstance(d, Doubt) and d.code == "few-samples"]

    assert len(missing) == 3
    assert {sentence.split()[0] for sentence in missing} == {
        "time_to_first_token.p99", "time_per_output_token.p99", "inter_token_latency.p99",
    }  # fmt: skip
    assert all("another length" in sentence for sentence in missing)


def test_whoever_watches_is_told_of_the_length(session: Session) -> None:
    """Progress names what is being generated."""
    events: list[object] = []
    measured(subject(session, (4,), (3,), watch=events.append))

    assert "generation@prompt=4,generate=3: steady" in {e.stage for e in events if isinstance(e, Progressed)}


def test_only_a_session_that_generates_will_do(session: Session) -> None:
    """The capability is one method."""
    assert isinstance(session, CanGenerate)
    assert not isinstance(object(), CanGenerate)
