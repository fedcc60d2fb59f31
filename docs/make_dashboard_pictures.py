"""Takes the pictures of the dashboard in docs/: a store with samples, in Chromium.

python docs/make_dashboard_pictures.py; needs Playwright and Chromium (make test-browser).
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent.parent))

from playwright.sync_api import sync_playwright
from tests.support.sample_registry import a_figure, a_target, a_task, a_variant, a_version

from modeldyno.base import plugins
from modeldyno.base.kinds import kind_of
from modeldyno.registry.targets import target_here
from modeldyno.reports.pdf import find_browser
from modeldyno.testing.sample_results import a_result
from modeldyno.testing.sample_series import a_ladder

if TYPE_CHECKING:
    from modeldyno.base.result.result import Result

DOCS = Path(__file__).parent
PICTURES = {
    "dashboard-overview": ("/", "light", 1160, 600),
    "dashboard-models": ("/models", "light", 1160, 620),
    "dashboard-trend": ("/trends?name=encoder", "light", 1160, 860),
    "dashboard-load": (f"/loads/{a_ladder().id}", "dark", 1160, 700),
}
"""Name: page, colours, width and height."""
SLOWER_SINCE = 15
"""Day of the step in the history."""


def main() -> None:
    """Fill a store, serve it, take the pictures."""
    random.seed(1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MODELDYNO_STORE"] = f"sqlite:///{folder}/store.db"
        fill()
        dashboard = subprocess.Popen(
            [sys.executable, "-m", "modeldyno", "ui", "--port", "0"], stdout=subprocess.PIPE, text=True
        )
        assert dashboard.stdout is not None
        address = dashboard.stdout.readline().split()[4]
        try:
            take(address)
        finally:
            dashboard.terminate()
            dashboard.wait()


def fill() -> None:
    """Store three models with two versions each on two targets, a history and a load curve."""
    with plugins.store() as store:
        registry = store.registry
        targets = replace(target_here(), name="desktop"), a_target(name="gpu-server")
        for target in targets:
            registry.put_target(target)
        for name, milliseconds in (("detector", 12.0), ("minilm", 1.2), ("resnet50", 4.0)):
            for number in (1, 2):
                digest = f"sha256:{name.encode().hex()}{number}".ljust(71, "0")
                version, _ = registry.add_version(a_version(model=name, number=number, digest=digest))
                registry.put_variant(a_variant(version), "ada")
                for place, target in enumerate(targets):
                    key = f"{name.encode().hex()[:9]}{number}{place}0"
                    result = result_of(name, key, milliseconds / number**0.2 / (1 + 2 * place))
                    store.put(result, headline=kind_of(result).brief(result))
                    task = replace(a_task(version), target=target.id, key=key)
                    registry.put_figures([a_figure(task, target=target.id, result=result.id)])
        for day in range(1, 25):
            created = f"2027-01-{day:02}T06:00:00+00:00"
            identifier = hashlib.sha256(created.encode()).hexdigest()[:12]
            result = result_of("encoder", identifier, 1.2 if day < SLOWER_SINCE else 1.5, created)
            store.put(result, headline=kind_of(result).brief(result))
        ladder = a_ladder()
        store.put_conclusion(ladder, headline=kind_of(ladder).brief(ladder))


def result_of(
    name: str, identifier: str, milliseconds: float, created: str = "2026-12-01T00:00:00+00:00"
) -> Result:
    """Return a result with these times and some noise."""
    level = milliseconds * random.lognormvariate(0, 0.01)
    samples = [level * random.lognormvariate(0, 0.03) / 1000 for _ in range(1500)]
    result = a_result(id=identifier, name=name, samples=samples, created=created)
    latency, rate, *others = result.measurements
    rate = replace(rate, value=1000 / level, interval=None, runs=())
    return replace(result, measurements=(latency, rate, *others))


def take(address: str) -> None:
    """Take each picture."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(find_browser()), args=["--no-sandbox"])
        for name, (path, scheme, width, height) in PICTURES.items():
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            page.goto(address + path)
            page.wait_for_timeout(1500)
            page.screenshot(path=str(DOCS / f"{name}.png"))
        browser.close()


if __name__ == "__main__":
    main()
