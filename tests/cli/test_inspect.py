from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from modeldyno.base import codec
from modeldyno.base.errors import InputRefused, RequestError
from modeldyno.base.job.static_options import Mode
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.result.result import Result
from modeldyno.comparison import codec as codec_comparison
from modeldyno.profiling.request import Request, ResolvedRequest
from modeldyno.profiling.run import JudgedResult
from modeldyno.testing.sample_results import a_failed_result, an_inspection

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    class CommandResult(Protocol):
        code: int
        out: str
        err: str


STEADY = "call:modeldyno.testing.known_latency:steady"
DIGITS = str(Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx")


@dataclass
class Lab:
    """Replaces the analysis of models."""

    results: list[Result] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    def measure(self, resolved: ResolvedRequest, *, watch: object, limit: object) -> JudgedResult:
        """Return the next Result."""
        del watch, limit
        self.requests.append(resolved.request)
        return JudgedResult(result=self.results[len(self.requests) - 1])


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Returns results of a teacher and a student instead of analysing."""
    made = Lab(results=[an_inspection(), an_inspection(id="0123456789ac", name="student")])
    monkeypatch.setattr("modeldyno.cli.actions.inspect.run_request", made.measure)
    return made


def test_a_model_is_looked_at_in_a_child(modeldyno: Callable[..., CommandResult], tmp_path: Path) -> None:
    """A real file gives its totals, saved and stored; process memory is not reported as the model's."""
    pytest.importorskip("onnx")
    completed = modeldyno("inspect", DIGITS, "--json", "r.json", "--tag", "looked")
    result = codec.read(tmp_path / "r.json")

    assert completed.code == 0
    assert completed.out.startswith("digits has 38.3 k parameters (150 KiB)")
    assert 38_000 < (result["parameters"] or 0) < 39_000
    assert result.find("process_memory") is None
    assert result.job.inspection.modules
    assert "digits (looked)  38.3 k parameters, 338 kMACs" in modeldyno("list").out
    assert modeldyno("show", "looked", "--get", "parameters").out == f"{result['parameters']}\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="nothing here is always full")
@pytest.mark.parametrize(
    ("arguments", "first"),
    [((), "mini has "), (("--compare", STEADY), "student")],
)
def test_what_cannot_be_written_is_still_printed(
    arguments: tuple[str, ...], first: str, modeldyno: Callable[..., CommandResult], lab: Lab
) -> None:
    """A full disk loses no report of a result or a comparison, and nothing is said to be saved."""
    del lab
    completed = modeldyno("inspect", STEADY, *arguments, "--json", "/dev/full")

    assert completed.code == 4
    assert first in completed.out
    assert "Saved" not in completed.out
    assert completed.err.endswith("modeldyno: Cannot write /dev/full: No space left on device.\n")


def test_every_option_arrives(modeldyno: Callable[..., CommandResult], lab: Lab) -> None:
    """The request has all options, in base units."""
    result = modeldyno(
        "inspect", STEADY, "--mode", "train", "--optimizer", "sgd", "--vary", "depth=1..4 seq=7", "--vary",
        "width=3", "--input", "x=8x4", "--set", "batch_size=8", "--device", "a100", "--device", "here",
        "--memory", "24GiB", "--name", "mine", "--trust", "--timeout", "1m", "--memory-limit", "2GiB", "-q",
    )  # fmt: skip
    (request,) = lab.requests

    assert result.code == 0
    assert request.probes == ("static",)
    assert request.settings == {"batch_size": "8"}
    assert (request.inputs, request.name, request.trust) == (("x=8x4",), "mine", True)
    assert (request.plan.timeout, request.plan.memory_limit) == (60.0, 2 << 30)
    assert (request.inspection.mode, request.inspection.optimizer) == (Mode.TRAIN, "sgd")
    assert request.inspection.vary == {"depth": (1, 2, 4), "seq": (7,), "width": (3,)}
    assert (request.inspection.devices, request.inspection.memory) == (("a100", "here"), 24 * 2**30)
    assert request.inspection.modules


@pytest.mark.parametrize(
    "arguments",
    [
        ("--vary", "batch=1..4", "seq=128,512", STEADY),
        (STEADY, "--vary", "batch=1..4", "seq=128,512"),
        ("--vary=batch=1..4", "seq=128,512", STEADY),
        ("--vary", "batch=1..4 seq=128,512", STEADY),
        ("--vary", "batch=1..4", "-q", "--vary", "seq=128,512", STEADY),
    ],
)
def test_sizes_need_no_quotation_marks(
    modeldyno: Callable[..., CommandResult], lab: Lab, arguments: tuple[str, ...]
) -> None:
    """Words of sizes that follow --vary belong to it, however they are written."""
    assert modeldyno("inspect", *arguments).code == 0
    assert lab.requests[0].inspection.vary == {"batch": (1, 2, 4), "seq": (128, 512)}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "MODEL is missing; name the model"),
        (("no.onnx",), "There is no file or directory 'no.onnx'"),
        ((STEADY, "--vary", "batch"), "--vary 'batch' is not dimension=sizes"),
        ((STEADY, "--vary", "batch=1..1000", "seq=1..9999999", "w=1..9999999"), "combinations of sizes"),
        ((STEADY, "--memory", "much"), "'much' is not a quantity; write a number and a unit, such as 24GiB"),
        ((STEADY, "--mode", "traning"), "'traning' is not one of"),
        ((STEADY, "--optimizer", "adamax"), "'adamax' is not one of"),
        ((STEADY, "--sort", "size"), "'size' is not one of"),
        ((STEADY, "--set", "batchsize=8"), "did you mean 'batch_size'?"),
        ((STEADY, "--compare", "no.onnx"), "There is no file or directory 'no.onnx'"),
        ((STEADY, "--set", "batch_size=4", "--vary", "batch=1,2"), "both set the batch size"),
        ((STEADY, "--optimizer", "sgd"), "The optimizer sgd has no effect without --mode train"),
        ((STEADY, "--memory", "-1GiB"), "--memory -1GiB: it must be more than 0"),
        ((DIGITS, "--set", "threads=1"), "threads=1 has no effect: nothing is run"),
        ((STEADY, "--json", "no/such/r.json"), "the directory no/such does not exist"),
        ((STEADY, "-o", "x.docx"), "No reporter writes 'x.docx'"),
        ((STEADY, "a=1"), "Got unexpected extra argument"),
    ],
)
def test_a_wrong_request_gets_one_sentence(
    modeldyno: Callable[..., CommandResult], lab: Lab, arguments: tuple[str, ...], says: str
) -> None:
    """Exit code 2, one line on standard error, and nothing is analysed."""
    result = modeldyno("inspect", *arguments)

    assert (result.code, result.out, lab.requests) == (2, "", [])
    assert len(result.err.strip().splitlines()) == 1
    assert says in result.err


@pytest.mark.usefixtures("lab")
class TestShown:
    def test_everything_of_one_model(self, modeldyno: Callable[..., CommandResult]) -> None:
        """The sentence, the totals and the modules, within the terminal."""
        result = modeldyno("inspect", STEADY)

        assert result.code == 0
        assert result.out.startswith("mini has 22.7 M parameters")
        assert "· encoder.layer.0-5 (6 x Layer)" in result.out
        assert all(len(line) <= 80 for line in result.out.splitlines())

    def test_as_much_as_was_asked_for(self, modeldyno: Callable[..., CommandResult]) -> None:
        """Depth, order, filter and verbosity decide what is printed."""
        assert "Modules, to depth 1" in modeldyno("inspect", STEADY, "--depth", "1").out
        assert "aten.addmm" in modeldyno("inspect", STEADY, "-v").out

    def test_filtered(self, modeldyno: Callable[..., CommandResult]) -> None:
        """A filter names modules by their path."""
        assert "Modules with 'pool'" in modeldyno("inspect", STEADY, "--filter", "pool").out

    def test_quiet(self, modeldyno: Callable[..., CommandResult]) -> None:
        """One line for a model, and the verdict for two."""
        assert len(modeldyno("inspect", STEADY, "-q").out.splitlines()) == 1

    def test_an_input_that_one_of_two_refuses(
        self, modeldyno: Callable[..., CommandResult], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The error names the model and the options that give each its own; of a single model it does not."""

        def refuse(*_: object, **__: object) -> None:
            raise InputRefused("There is no input 'y'; known: x.")

        monkeypatch.setattr("modeldyno.cli.actions.inspect.run_request", refuse)
        two = modeldyno("inspect", STEADY, "--compare", STEADY, "--input", "y=1x8")

        assert (two.code, two.out) == (2, "")
        assert two.err.endswith(
            ":steady: There is no input 'y'; known: x; give each model its own with --baseline-input and "
            "--candidate-input.\n"
        )
        assert modeldyno("inspect", STEADY, "--input", "y=1x8").err.endswith("'y'; known: x.\n")

    def test_quiet_of_two(self, modeldyno: Callable[..., CommandResult]) -> None:
        """Only the differences."""
        result = modeldyno("inspect", STEADY, "--compare", STEADY, "-q")

        assert " ".join(result.out.split()) == (
            "student performs the same as mini: parameters, weight_bytes, macs and memory_peak equal."
        )

    def test_side_by_side(self, modeldyno: Callable[..., CommandResult], tmp_path: Path) -> None:
        """Two models are compared as by modeldyno compare; both results and the comparison are stored."""
        result = modeldyno("inspect", STEADY, "--compare", STEADY, "--json", "both.json")
        comparison = codec_comparison.read(tmp_path / "both.json")
        listed = modeldyno("list").out

        assert result.out.startswith("student performs the same as mini: parameters, weight_bytes, macs")
        assert "Saved to both.json." in result.out
        assert [comparison.baseline.id, comparison.contrasts[0].candidate.id] == [
            "0123456789ab",
            "0123456789ac",
        ]
        assert all(each in listed for each in ("0123456789ab", "0123456789ac", comparison.id[:6]))
        assert modeldyno("show", comparison.id).out.startswith("student performs the same as mini")

    def test_a_comparison_on_standard_output(self, modeldyno: Callable[..., CommandResult]) -> None:
        """With --json - a pipe gets the document and nothing else."""
        result = modeldyno("inspect", STEADY, "--compare", STEADY, "--json", "-", "--no-store")

        assert codec_comparison.decode(result.out).baseline.name == "mini"

    def test_the_table_of_compression(self, modeldyno: Callable[..., CommandResult]) -> None:
        """Five rows, and with two models the improvement of the second."""
        one = modeldyno("inspect", STEADY, "--table", "--no-store").out

        assert "Computational complexity" in one
        assert "Enhancement" not in one

    def test_the_table_of_two(self, modeldyno: Callable[..., CommandResult]) -> None:
        """With --compare the table has a column for the difference."""
        assert "Enhancement" in modeldyno("inspect", STEADY, "--compare", STEADY, "--table").out

    @pytest.mark.parametrize("suffix", [".csv", ".html", ".json", ".md"])
    def test_a_report_of_two(
        self, modeldyno: Callable[..., CommandResult], tmp_path: Path, suffix: str
    ) -> None:
        """-o writes the comparison in any format; a table of numbers only names the candidates."""
        result = modeldyno("inspect", STEADY, "--compare", STEADY, "-o", f"r{suffix}", "--no-store")
        written = (tmp_path / f"r{suffix}").read_text()

        assert result.code == 0
        assert ("mini" in written) is (suffix != ".csv")
        assert "student" in written

    def test_all_numbers_are_those_of_the_whole(self, modeldyno: Callable[..., CommandResult]) -> None:
        """-v adds no line per module: the tree and the files have those."""
        numbers = modeldyno("inspect", STEADY, "-v").out.partition("\nNumbers\n")[2]

        assert "roofline_latency" in numbers
        assert "encoder" not in numbers

    def test_a_report(self, modeldyno: Callable[..., CommandResult], tmp_path: Path) -> None:
        """-o writes the report of one model, and a stored one is written alike."""
        assert modeldyno("inspect", STEADY, "-o", "r.html", "-o", "r.csv").code == 0
        assert (tmp_path / "r.csv").read_text().startswith("metric,")
        assert modeldyno("report", "0123456789ab", "-o", "s.md").code == 0
        assert "encoder.layer.0-5" in (tmp_path / "s.md").read_text()
        assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")


def test_a_failure_exits_with_4(modeldyno: Callable[..., CommandResult], lab: Lab) -> None:
    """Failures are stored; with two models, one failure is enough."""
    lab.results[1] = a_failed_result(id="0123456789ac")
    result = modeldyno("inspect", STEADY, "--compare", STEADY)

    assert result.code == 4
    assert "The child took 2 GiB." in result.out


def test_an_interruption_ends_it(modeldyno: Callable[..., CommandResult], lab: Lab) -> None:
    """After an interruption of the first analysis, the second is not started, and the first is saved."""
    lab.results[0] = replace(lab.results[0], doubts=(Doubt(code="interrupted", seen="s", advice="a"),))
    result = modeldyno("inspect", STEADY, "--compare", STEADY)

    assert (result.code, len(lab.requests)) == (130, 1)
    assert "012345" in modeldyno("list").out


def test_a_place_that_fails_is_told_last(
    modeldyno: Callable[..., CommandResult], lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a file cannot be written, the result is still printed and stored."""

    def refuse(_path: Path, _data: bytes) -> None:
        raise RequestError("Cannot write r.json: the disk is full.")

    monkeypatch.setattr(codec, "write", refuse)
    result = modeldyno("inspect", STEADY, "--json", "r.json")

    assert result.code == 2
    assert result.out.startswith("mini has")
    assert "the disk is full" in result.err
    assert lab.results[0].id[:6] in modeldyno("list").out


def test_a_file_gives_defaults(modeldyno: Callable[..., CommandResult], lab: Lab, tmp_path: Path) -> None:
    """The table [inspect] of modeldyno.toml stands for flags."""
    (tmp_path / "modeldyno.toml").write_text('[inspect]\nvary = ["batch=1,2"]\nmode = "train"\n')
    modeldyno("inspect", STEADY, "-q")

    assert lab.requests[0].inspection.vary == {"batch": (1, 2)}
    assert lab.requests[0].inspection.mode is Mode.TRAIN


def test_an_optimizer_of_a_file_waits_for_training(
    modeldyno: Callable[..., CommandResult], lab: Lab, tmp_path: Path
) -> None:
    """Outside training, only a typed optimizer is refused."""
    (tmp_path / "modeldyno.toml").write_text('[inspect]\noptimizer = "sgd"\n')

    assert modeldyno("inspect", STEADY, "-q").code == 0
    assert modeldyno("inspect", STEADY, "-q", "--mode", "train").code == 0
    assert [request.inspection.optimizer for request in lab.requests] == ["adamw", "sgd"]


class TestShow:
    @pytest.fixture(autouse=True)
    def saved(self, tmp_path: Path) -> None:
        """Save an inspection."""
        codec.write(tmp_path / "r.json", codec.encode(an_inspection()))

    @pytest.mark.parametrize(
        ("query", "answer"),
        [
            ("macs@encoder.layer.0", "235438080\n"),
            ("macs@encoder.layer.0.attention.query", "18874368\n"),
            ("weight_bytes@float32", "90852864\n"),
            ("roofline_latency@a100", "0.0001312\n"),
            ("macs.ci", "1412628480 1442628480\n"),
        ],
    )
    def test_one_number_of_a_module(
        self, modeldyno: Callable[..., CommandResult], query: str, answer: str
    ) -> None:
        """A path behind the @ names a module, a dtype or a device."""
        assert modeldyno("show", "r.json", "--get", query).out == answer

    def test_as_much_as_was_asked_for(self, modeldyno: Callable[..., CommandResult]) -> None:
        """A saved inspection is shown with the same options."""
        assert "Modules, to depth 1" in modeldyno("show", "r.json", "--depth", "1").out
        assert "Modules with 'pool'" in modeldyno("show", "r.json", "--filter", "pool").out
        assert "aten.addmm" in modeldyno("show", "r.json", "-v").out

    def test_a_bound_on_a_module(self, modeldyno: Callable[..., CommandResult]) -> None:
        """Exact counts are judged without a doubt."""
        assert modeldyno("show", "r.json", "--require", "macs@encoder.layer.0 <= 1G").code == 0
        assert modeldyno("show", "r.json", "--require", "parameters <= 1M").code == 1
