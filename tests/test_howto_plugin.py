"""The example of docs/howto/add-a-metric.md works as it stands, from a package and from a script."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import modeldyno
from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.measurement import Measurement, observed_number
from modeldyno.base.metrics.metric import METRICS
from modeldyno.engine.runtime.events import event_of

PAGE = (Path(__file__).parent.parent / "docs" / "howto" / "add-a-metric.md").read_text(encoding="utf-8")
NET = """import torch

def dense():
    return torch.nn.Linear(8, 2), torch.zeros(4, 8)

def half():
    net, inputs = dense()
    with torch.no_grad():
        net.weight[0] = 0
    return net, inputs
"""
SCRIPT = """
result = modeldyno.profile("net.py:half", probes="sparsity", require="sparsity >= 0.3", store=False)
compared = modeldyno.compare(modeldyno.read("half.json"), result, metrics="sparsity")
print(result["sparsity"], compared.contrasts[0].changes[0].difference)
"""

pytestmark = pytest.mark.pages


class Site:
    """The package of the page, installed in a folder of its own, with or without its table of metrics."""

    def __init__(self, folder: Path) -> None:
        """Install it twice."""
        self.folder = folder
        (folder / "net.py").write_text(NET, encoding="utf-8")
        tables = [tomllib.loads(text) for text in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)]
        groups = tables[0]["project"]["entry-points"]
        self._install("whole", groups)
        self._install("probe", {"modeldyno.probes": groups["modeldyno.probes"]})

    def _install(self, name: str, groups: dict[str, dict[str, str]]) -> None:
        info = self.folder / name / "my_package-0.1.dist-info"
        info.mkdir(parents=True)
        (self.folder / name / "my_package").mkdir()
        for text in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
            if named := re.match(r"# (my_package/\w+\.py)\n", text):
                (self.folder / name / named[1]).write_text(text, encoding="utf-8")
        (info / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: my_package\nVersion: 0.1\n", encoding="utf-8"
        )
        lines = [
            f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in each.items())
            for group, each in groups.items()
        ]
        (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")

    def python(self, *arguments: str, installed: str = "whole") -> subprocess.CompletedProcess[str]:
        """Run Python beside the package: ``whole``, only its ``probe``, or ``nothing`` of it."""
        path = os.pathsep.join((str(self.folder / installed), os.environ.get("PYTHONPATH", "")))
        return subprocess.run(
            [sys.executable, *arguments], cwd=self.folder, env=os.environ | {"PYTHONPATH": path},
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    def modeldyno(self, *arguments: str, installed: str = "whole") -> subprocess.CompletedProcess[str]:
        """Run the command line."""
        return self.python("-m", "modeldyno", *arguments, installed=installed)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Both models, measured with the plugin, and a study and a comparison of them."""
    pytest.importorskip("torch")
    site = Site(tmp_path_factory.mktemp("site"))
    for name in ("half", "dense"):
        measured = site.modeldyno("profile", f"net.py:{name}", "--probe", "sparsity", "--json",
                                  f"{name}.json", "--no-store")  # fmt: skip
        assert measured.returncode == 0, measured.stderr
        assert f"net.{name} has sparsity {'44.4%' if name == 'half' else '0%'}." in measured.stdout
    swept = site.modeldyno("sweep", "net.py:half", "--space", "batch_size=1,2", "--probe", "sparsity",
                           "--maximize", "sparsity", "--max-trials", "2", "--max-time", "20s",
                           "--trial-time", "1s", "--json", "study.json", "--no-store")  # fmt: skip
    assert "sparsity" in swept.stdout, swept.stderr
    compared = site.modeldyno("compare", "half.json", "dense.json", "--metric", "sparsity",
                              "--json", "comparison.json")  # fmt: skip
    assert re.search(r"sparsity +44.4% +0% +-44.4 points +worse", compared.stdout), compared.stderr
    return site


def test_it_is_asked_for_bounded_and_listed(site: Site) -> None:
    """As any metric of the table."""
    assert site.modeldyno("show", "half.json", "--get", "sparsity").stdout == "0.444444444444\n"
    for name, code in (("half", 0), ("dense", 1)):
        assert site.modeldyno("show", f"{name}.json", "--require", "sparsity >= 0.3").returncode == code
    listed = site.modeldyno("plugins", "metrics").stdout
    assert re.search(r"^  sparsity +Share of the weights that are zero.$", listed, re.MULTILINE)


def test_it_gates(site: Site) -> None:
    """A candidate with fewer zeros than the baseline fails."""
    judged = site.modeldyno("check", "dense.json", "--baseline", "half.json", "--metric", "sparsity")

    assert judged.returncode == 1
    assert "net.dense fails: sparsity 44.44% -> 0%, -44.4 points: worse." in judged.stdout


@pytest.mark.parametrize("installed", ["whole", "nothing"])
def test_documents_with_it_are_shown_reported_and_exported(site: Site, installed: str) -> None:
    """Where the plugin is installed, and where it is not."""
    for document in ("half", "comparison", "study"):
        done = site.modeldyno("show", f"{document}.json", installed=installed)
        assert "44.4%" in done.stdout, done.stderr
        reported = site.modeldyno("report", f"{document}.json", "-o", f"{document}.md", installed=installed)
        assert reported.returncode == 0, reported.stderr
        assert "44.4%" in (site.folder / f"{document}.md").read_text(encoding="utf-8")
    exported = site.modeldyno("export", "half.json", "--to", "prometheus:half.prom", installed=installed)
    assert exported.returncode == 0, exported.stderr
    assert "# HELP modeldyno_sparsity_ratio Share of the weights that are zero." in (
        site.folder / "half.prom"
    ).read_text(encoding="utf-8")


def test_without_the_plugin_the_number_is_told_and_no_bound_is_judged(site: Site) -> None:
    """A name that is not installed is refused, as a misspelt one is."""
    done = site.modeldyno("show", "half.json", "--get", "sparsity", installed="nothing")
    bounded = site.modeldyno("show", "half.json", "--require", "sparsity >= 0.3", installed="nothing")
    profiled = site.modeldyno("profile", "net.py:half", "--require", "sparsity >= 0.3", installed="nothing")

    assert (done.returncode, done.stdout) == (0, "0.444444444444\n")
    assert "There is no metric 'sparsity' here; the number is as the document has it." in done.stderr
    assert bounded.returncode == profiled.returncode == 2
    assert "There is no metric 'sparsity'" in profiled.stderr
    assert "This result has sparsity 44.4%, which no bound can judge here." in bounded.stderr


def test_a_script_registers_it(site: Site) -> None:
    """The child that measures knows it, too; the page shows the call."""
    (call,) = (
        text for text in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "register_metric" in text
    )
    (site.folder / "script.py").write_text(call + SCRIPT, encoding="utf-8")
    done = site.python("script.py", installed="probe")

    assert done.stdout == f"{4 / 9} 0.0\n", done.stderr


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"name": "latency"}, "The name of the metric 'latency' is taken"),
        ({"name": "Spar city"}, "A metric cannot be named 'Spar city'"),
        ({"unit": "zeros"}, "The metric 'sparsity' is in 'zeros', which is no base unit"),
        ({"better": "up"}, "There is no direction of a metric 'up'; known: higher, lower, neither"),
    ],
)
def test_a_metric_that_cannot_be_is_refused(fields: dict[str, str], says: str) -> None:
    """By one sentence that names what is wrong."""
    row = {"name": "sparsity", "unit": "fraction", "better": "higher", "sentence": "Zeros."} | fields

    with pytest.raises(RequestError, match=says):
        modeldyno.register_metric(**row)  # type: ignore[arg-type]

    assert "sparsity" not in METRICS


def test_a_metric_that_nobody_declares_is_told_with_what_to_do() -> None:
    """Not a mistake of ours, and not one that comes up in the report alone."""
    assert isinstance(event_of(observed_number("macs", 1)), Measurement)
    with pytest.raises(
        RequestError, match="'vibes', which is no declared metric; declare it by an entry point"
    ):
        event_of(observed_number("vibes", 1.0))


@pytest.mark.parametrize("page", ["add-a-metric.md", "count-your-operator.md", "write-a-plugin.md"])
def test_authors_import_modeldyno_plugin_alone(page: str) -> None:
    """The pages for the authors of plugins import nothing from inside the package."""
    text = (Path(__file__).parent.parent / "docs" / "howto" / page).read_text(encoding="utf-8")
    deep = re.findall(r"^(?:from|import) (modeldyno\.(?!plugin\b|testing\b)\S+)", text, re.MULTILINE)
    assert not deep
