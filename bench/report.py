"""What the page of a study of 1,000 trials costs: to write, to carry, to open in Chromium.

The study is simulated. Writing is timed from the document to the bytes, ranking included, and as time of the
processor, so that a busy machine does not count; of several times the least is told. What Chromium did is
seen through Playwright: pip install playwright, and any Chromium (see docs/howto/report.md).

    python bench/report.py [--trials 1000] [--times 5]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.sample_reports import a_large_study

from modeldyno.reports import html, pdf
from modeldyno.sweeps.views import page as study_page

WATCH = """
window.broken = 0;
document.addEventListener("securitypolicyviolation", () => window.broken++);
"""
DRAWN = "performance.getEntriesByName('drawn').map((mark) => mark.startTime)[0]"


def main() -> None:
    """Print a row for each figure, with what is promised of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    pages, seconds = zip(*(write_page(options.trials) for _ in range(options.times)), strict=True)
    text = pages[0]
    print(f"page of a study of {options.trials:,} trials")
    print(f"  written in           {min(seconds):8.2f} s     (promised: < 2 s)")
    print(f"  bytes                {len(text):8,}       (promised: <= 1,000,000)")
    print(f"  bundle that draws    {len((Path(html.__file__).parent / 'page/echarts.js').read_bytes()):8,}")
    pages_opened = [open_page(text) for _ in range(options.times)]
    print(
        f"  first picture after  {min(first for first, *_ in pages_opened):8.0f} ms    (promised: < 1,000 ms)"
    )
    for place, name in enumerate(("pictures drawn", "requests", "console errors", "violations"), 1):
        print(f"  {name:20} {max(each[place] for each in pages_opened):8}")


def write_page(trials: int) -> tuple[str, float]:
    """Write the page; give it and the seconds of the processor that it took."""
    study = a_large_study(trials)
    begin = time.process_time()
    blocks = study_page.page(study)
    text = html.lay_out(blocks, title="a study")
    return text, time.process_time() - begin


def open_page(text: str) -> tuple[float, int, int, int, int]:
    """Open a page; give the milliseconds to its first picture, and how much of what there was."""
    from playwright.sync_api import sync_playwright  # only the bench needs it

    requested: list[str] = []
    errors: list[str] = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        path = Path(folder) / "page.html"
        path.write_text(text)
        browser = started.chromium.launch(executable_path=pdf.find_browser(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1000, "height": 900})
        page.add_init_script(WATCH)
        page.on("request", lambda request: requested.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.goto(path.as_uri())
        page.wait_for_selector("figure.drawn", state="attached")
        first: Any = page.evaluate(DRAWN)
        page.evaluate(
            "async () => { for (let y = 0; y < document.body.scrollHeight; y += 500) {"
            " scrollTo(0, y); await new Promise((done) => setTimeout(done, 50)); } }"
        )
        drawn, broken = page.locator("figure.drawn").count(), page.evaluate("window.broken")
        browser.close()
    return float(first), drawn, len(requested) - 1, len(errors), int(broken)


if __name__ == "__main__":
    main()
