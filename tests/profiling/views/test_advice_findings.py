from __future__ import annotations

from dataclasses import replace

import pytest

from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.knob import BATCH_SIZE, Knob, KnobValue
from modeldyno.base.job.load_spec import Load
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Interval, observed_number
from modeldyno.base.metrics.metric import Query
from modeldyno.base.report.blocks import Notice, Severity, Table
from modeldyno.base.result.cost import Price
from modeldyno.base.result.output_agreement import OutputAgreement
from modeldyno.base.result.static_data import Operator, StaticReport
from modeldyno.comparison.change.advice import Advice, CandidateSettings, TriedSetting
from modeldyno.comparison.change.comparison import Change, ChangeVerdict
from modeldyno.comparison.views.advice import advice, sentence
from modeldyno.profiling.findings.bottleneck import Bottleneck, Limit
from modeldyno.profiling.findings.finding import Finding, Saving
from modeldyno.profiling.views.findings import (
    LIMITS,
    bottleneck_notices,
    command_for_job,
    describe_saving,
    finding_notice,
    findings_of,
    pointer,
)
from modeldyno.reports import terminal
from modeldyno.testing.sample_results import a_result, a_small_result

KNOBS = (
    Knob(name="threads", kind=int, default=None, sentence=""),
    Knob(name="device", kind=str, default="cpu", sentence=""),
    Knob(name="io_binding", kind=bool, default=False, sentence=""),
    BATCH_SIZE,
)
SHORT = a_result(
    outline=StaticReport(sizes={"batch": 8}, operators=(Operator(kind="onnx.Add", calls=100),)),
    environment=replace(a_result().environment, hardware={"cpu_quota": 2.0}),
)


class TestFindings:
    def test_a_finding_says_what_to_type(self) -> None:
        """The command has what is tried, and nothing that is usual."""
        (notice,) = [b for b in findings_of(SHORT, KNOBS) if isinstance(b, Notice) and b.code == "threads"]
        assert notice.advice == (
            "modeldyno profile onnx:models/digits.onnx --backend onnxruntime --set batch_size=8 "
            "--set threads=1 --input image=batch,64:float32:0..16"
        )
        assert notice.text.startswith("An operator takes 12.8 us")
        assert "one thread leaves the other cores to other calls." in notice.text

    def test_nothing_found_says_what_would_show_more(self) -> None:
        """A profile with more probes."""
        (notice,) = findings_of(a_small_result())
        assert isinstance(notice, Notice)
        assert "--probe static,latency,throughput,layers,ops" in notice.text

    @pytest.mark.parametrize(
        ("clause", "sentence"),
        [
            ("float32 becomes float64", "float32 becomes float64."),
            ("torch.compile fuses operators", "torch.compile fuses operators."),
            ("aten::copy_ in the model takes 1 ms", "aten::copy_ in the model takes 1 ms."),
            ("a call runs 331 operators", "A call runs 331 operators."),
            ("blocks that were freed are kept", "Blocks that were freed are kept."),
        ],
    )
    def test_a_name_of_code_is_written_as_it_is(self, clause: str, sentence: str) -> None:
        """A sentence begins with a capital, but not where it begins with a name such as torch.compile."""
        finding = Finding(code="compile", seen="a call waits", why=clause)
        assert finding_notice(SHORT, finding).text == f"A call waits. {sentence}"

    def test_what_tries_a_finding_of_an_inspection_measures(self) -> None:
        """An inspection has no settings, so that its own command would not try anything."""
        analysed = replace(SHORT, measurements=(), job=replace(SHORT.job, config={}, probes=("static",)))
        command = command_for_job(analysed, analysed.job.at({"threads": 1}), KNOBS)

        assert command.startswith(f"modeldyno profile {SHORT.job.model} --backend {SHORT.job.backend} ")
        assert "--set threads=1" in command
        assert "--probe" not in command

    def test_an_estimate_is_told_with_its_basis(self) -> None:
        """And where it may be a loss; where nothing bounds it, nothing is said."""
        sure = Saving(of="time of a call", low=0.0, high=0.5, basis="half of the bytes")
        assert describe_saving(sure) == "It saves 0% to 50% of the time of a call: half of the bytes."
        assert describe_saving(replace(sure, low=None)).startswith(
            "It saves at most 50% of the time of a call, or"
        )
        assert describe_saving(None) == ""

    def test_what_is_no_setting_is_told_in_words(self) -> None:
        """What to do stands where the command would."""
        notice = finding_notice(
            SHORT, Finding(seen="a copy", why="needless.", do="leave it out", code="needless")
        )
        assert notice.text == "A copy. Needless."
        assert notice.advice == "leave it out"

    def test_the_limit_is_named(self) -> None:
        """Each kind has its words."""
        assert set(LIMITS) == set(Limit)
        (notice,) = bottleneck_notices(Bottleneck(limit=Limit.QUEUE, share=0.6, seen="6 ms of 10 ms"))
        assert notice.text == "queueing in the server, 60% of the time: 6 ms of 10 ms"
        (notice,) = bottleneck_notices(Bottleneck(limit=Limit.CLIENT, share=None, seen="busy"))
        assert notice.text == "the client: busy"
        assert list(bottleneck_notices(None)) == []


class TestPointer:
    def test_it_names_the_findings_and_how_to_try_them(self) -> None:
        """In a process `advise` tries them, of a server `show` tells them; nothing is no line."""
        a_finding = Finding(seen="", why="", code="threads", job=SHORT.job)
        several = tuple(replace(a_finding, code=f"code-{n}") for n in range(6))
        one, many = pointer(SHORT, (a_finding,)), pointer(SHORT, several)
        assert one is not None
        assert one.text == "threads; to try them:"
        assert one.advice.startswith("modeldyno advise onnx:models/digits.onnx ")
        assert one.advises_command
        assert many is not None
        assert many.text == "code-0, code-1, code-2, code-3 and 2 more; to try them:"
        served = replace(SHORT, job=replace(SHORT.job, load=Load()))
        notice = pointer(served, (a_finding,))
        assert notice is not None
        assert (notice.text, notice.advice) == ("threads; to see them:", "modeldyno show 012345 --findings")
        assert pointer(SHORT, ()) is None

    def test_its_command_has_the_inputs_and_settings_of_the_profile(self) -> None:
        """Pasted, it runs what was profiled; what is usual is left out."""
        a_finding = Finding(seen="", why="", code="threads", job=SHORT.job)
        notice = pointer(SHORT, (a_finding,), KNOBS, usual_backend="onnxruntime")
        assert notice is not None
        assert notice.advice == (
            "modeldyno advise onnx:models/digits.onnx --set batch_size=8 --set threads=2 "
            "--input image=batch,64:float32:0..16"
        )
        trusted = replace(SHORT, job=replace(SHORT.job, trust=True, name="digits", inputs=()))
        notice = pointer(trusted, (a_finding,), KNOBS, usual_backend="torch")
        assert notice is not None
        assert notice.advice == (
            "modeldyno advise onnx:models/digits.onnx --backend onnxruntime --set batch_size=8 "
            "--set threads=2 --name digits --trust"
        )


def test_a_command_keeps_what_was_asked_for() -> None:
    """Cores and seed are kept, the care of a glance is not."""
    plan = replace(SHORT.job.plan, pin=(0, 1), seed=7, max_time=0.5)
    assert "--seed 7 --pin 0,1" in command_for_job(SHORT, replace(SHORT.job, plan=plan), KNOBS)
    assert "--max-time" not in command_for_job(SHORT, replace(SHORT.job, plan=plan), KNOBS)


def tried(difference: float, outcome: ChangeVerdict, rounds: int = 5, **settings: KnobValue) -> TriedSetting:
    interval = Interval(low=difference - 0.01, high=difference + 0.01)
    change = Change(
        query=Query.parse("throughput"), baseline=1.0, candidate=1 + difference, difference=difference,
        interval=interval, outcome=outcome,
    )  # fmt: skip
    beside = replace(change, query=Query.parse("latency.p50"), difference=-difference)
    return TriedSetting(
        candidate=CandidateSettings(codes=("some",), settings=settings),
        change=change,
        beside=(beside,),
        rounds=rounds,
    )


AGREED = OutputAgreement(output="y", largest=0.1, relative=0.002, cosine=0.9999)
ADVICE = Advice(
    id="0123456789ab", created="", query=Query.parse("throughput"), tolerance=0.01,
    baseline=a_small_result(name="net", measurements=(observed_number("throughput", 100.0),)),
)  # fmt: skip


class TestAdvice:
    def text_of(self, advised: Advice) -> str:
        """All texts of the blocks."""
        blocks = list(advice(advised))
        cells = [cell for b in blocks if isinstance(b, Table) for row in b.rows for cell in row]
        notices = [f"{b.text} {b.advice}" for b in blocks if isinstance(b, Notice)]
        return " | ".join([*notices, *cells])

    def test_what_inferences_cost_is_told_where_there_is_a_price(self) -> None:
        """After and before, and a column of what was tried."""
        best = tried(0.5, ChangeVerdict.BETTER, 7, threads=1)
        cost = replace(best.beside[0], query=Query.parse("cost"), baseline=0.6, candidate=0.4)
        best = replace(best, beside=(*best.beside, cost))
        lame = TriedSetting(candidate=best.candidate, failure="no")
        uncosted = tried(0.1, ChangeVerdict.SAME, 7, threads=2)
        priced = replace(
            ADVICE, tried=(best, lame, uncosted), finals=(best,), best=best, price=Price.parse("$1/h")
        )

        assert "; $0.400 per million inferences, before it was $0.600; outputs" in sentence(priced)
        (_, table) = [block for block in advice(priced) if isinstance(block, Table)]
        assert "cost per million" in [column.title for column in table.columns]
        assert [row[4] for row in table.rows] == ["$0.400", "—", ""]
        assert "per million" not in self.text_of(replace(priced, price=None))
        assert "per million" not in sentence(replace(priced, best=uncosted))

    def test_the_best_is_told_first_with_its_price(self) -> None:
        """What to set, what it gains with its interval, and what it does to the outputs."""
        best = replace(tried(0.5, ChangeVerdict.BETTER, 7, threads=1), outputs=(AGREED,))
        an_advice = replace(ADVICE, tried=(best,), finals=(best,), best=best, command="modeldyno profile net")
        clause = sentence(an_advice)
        assert clause.startswith(
            "net: with threads=1, throughput 50.0% higher (49.0% to 51.0%), over 7 rounds in turns with the "
            "baseline (100/s in the first run)"
        )
        assert "outputs differ by at most 0.002 of their largest value, cosine 0.999900" in clause
        assert "modeldyno profile net" in self.text_of(an_advice)
        assert "the outputs are the same" in sentence(
            replace(an_advice, best=replace(best, outputs=(replace(AGREED, relative=0.0),)))
        )
        assert "another batch" in sentence(
            replace(an_advice, best=replace(best, outputs=(), unlike="another batch"))
        )
        assert "not compared" in sentence(replace(an_advice, best=replace(best, outputs=())))

    def test_what_did_not_help_is_told_too(self) -> None:
        """Worse, the same, one run only, and what did not run, with why."""
        an_advice = replace(
            ADVICE,
            tried=(
                tried(-0.2, ChangeVerdict.WORSE, compile="default"),
                tried(0.0, ChangeVerdict.SAME, threads=2),
                tried(-0.6, ChangeVerdict.UNDECIDED, 0, threads=1),
                TriedSetting(
                    candidate=CandidateSettings(codes=(), settings={"precision": "int8"}),
                    failure="no torchao",
                ),
                replace(
                    tried(0.9, ChangeVerdict.BETTER, precision="bf16"),
                    outputs=(replace(AGREED, relative=0.05),),
                ),
            ),
            left_out=(CandidateSettings(codes=(), settings={"batch_size": 64}),),
        )
        text = self.text_of(an_advice)
        for phrase in (
            "worse",
            "the same",
            "one run only",
            "precision=int8 did not run: no torchao",
            "precision=bf16 is not combined with others: outputs differ by 0.05, more than the tolerance",
            "no time was left for batch_size=64",
            "±0.05",
        ):
            assert phrase in text
        assert "settings that seemed to help could not be confirmed" in sentence(an_advice)
        assert "2 settings tried; none is confirmed to be better than the current ones" in sentence(
            replace(an_advice, tried=an_advice.tried[:2])
        )
        assert "there is nothing to try" in sentence(ADVICE)

    def test_a_batch_that_was_given_is_told_to_be_the_only_one(self) -> None:
        """With the option that leaves it free."""
        job = replace(ADVICE.baseline.job, inputs=(InputSpec(name="x", shape=(8, 3)),))
        text = self.text_of(replace(ADVICE, baseline=replace(ADVICE.baseline, job=job)))
        assert "other batch sizes were not tried" in text
        assert "make it variable with --input x=batchx3 -b 8" in text
        assert "other batch sizes" not in self.text_of(ADVICE)

    def test_the_table_says_whether_anything_ran_in_turns(self) -> None:
        """One run of each confirms nothing."""
        once = tried(-0.3, ChangeVerdict.UNDECIDED, 0, threads=2)
        turns = tried(0.2, ChangeVerdict.BETTER, 5, threads=1)
        for ran, title in (((once,), "Tried, one run of each"), ((once, turns), "Tried, each in turns with")):
            assert title in terminal.text(list(advice(replace(ADVICE, tried=ran))))

    def test_findings_that_are_no_setting_are_told_at_the_end(self) -> None:
        """With what to do about them, as are settings that make no call faster."""
        starts = Finding(seen="a start", why="slow", job=ADVICE.baseline.job, metric="load_time")
        code = Finding(seen="a copy", why="needless", do="leave it out")
        text = self.text_of(replace(ADVICE, findings=(code, starts)))
        assert "A copy. Needless. leave it out" in text
        assert "A start. Slow. modeldyno profile" in text

    def test_the_tables_fit_into_eighty_columns(self) -> None:
        """A gain and its interval share a column."""
        best = replace(tried(4.89, ChangeVerdict.BETTER, 5, batch_size=16), outputs=(AGREED,))
        once = tried(-0.3, ChangeVerdict.UNDECIDED, 0, threads=2)
        lines = terminal.text(list(advice(replace(ADVICE, tried=(best, once), finals=(best,)))))

        assert max(map(len, lines.splitlines())) <= 80
        assert "batch_size=16  +489% (+488 to +490%)" in lines
        assert "one run only" in lines


def test_doubts_that_explain_a_limit_are_its_figures() -> None:
    """Other processes on the cores are named before anything else."""
    disturbed = replace(SHORT, doubts=(Doubt(code="interference", seen="others kept 1.4 cores", advice=""),))
    first = next(findings_of(disturbed, KNOBS))
    assert isinstance(first, Notice)
    assert first.severity is Severity.NOTE
    assert first.text == "other processes on this machine: others kept 1.4 cores"
