"""The dashboard in a real browser."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.dashboard.conftest import HOSTILE, LIVE_LOAD, LIVE_TOKENS, links_of, put
from tests.dashboard.test_app import example
from tests.support.sample_reports import payloads

from modeldyno.dashboard.app import PAGES
from modeldyno.testing.sample_results import a_result
from modeldyno.testing.server import serve_in_subprocess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.stores.interface import Store

AXE = Path(__file__).parents[2] / ".venv" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
EVERY = (*(example(route.path) for route in PAGES), f"/loads/{LIVE_LOAD.id}", f"/loads/{LIVE_TOKENS.id}")
"""An address of each page."""
pytestmark = [pytest.mark.browser, pytest.mark.timeout(3600)]
_WATCH = """
window.broken = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.broken.push(event.violatedDirective + event.sample));
"""


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """A page that notes what went wrong in it."""
    context = chromium.new_context()
    opened = context.new_page()
    opened.messages = []
    opened.add_init_script(_WATCH)
    opened.on(
        "console", lambda message: opened.messages.append(message.text) if message.type != "log" else None
    )
    opened.on("pageerror", lambda error: opened.messages.append(str(error)))
    opened.on("dialog", lambda dialog: (opened.messages.append(dialog.message), dialog.dismiss()))
    yield opened
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_every_page_fits_and_breaks_no_policy(page: Any, address: str, scheme: str, width: int) -> None:
    """No violation, no error, no dialog, and nothing wider than the screen but tables in their own box."""
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    for path in EVERY:
        page.goto(address + path)
        page.wait_for_timeout(200)

        assert page.evaluate("window.broken") == []
        assert page.messages == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_checker_of_accessibility_has_nothing_to_say(
    page: Any, address: str, scheme: str, width: int
) -> None:
    """Contrast, names, labels, landmarks, order of headings: axe-core finds no violation on any page."""
    if not AXE.is_file():
        pytest.skip("npm install --prefix .venv/axe axe-core")
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    broken_rules = {}
    for path in EVERY:
        page.goto(address + path)
        page.wait_for_timeout(300)
        page.evaluate(AXE.read_text(encoding="utf-8"))
        violations = page.evaluate("axe.run().then((found) => found.violations)")
        if violations:
            broken_rules[path] = [
                (one["id"], [(node["html"], node["failureSummary"]) for node in one["nodes"][:2]])
                for one in violations
            ]

    assert broken_rules == {}


def test_five_hundred_attacking_names_do_nothing(page: Any, address: str, store: Store) -> None:
    """In every list and on the pages of their documents: nothing runs, nothing is asked for elsewhere."""
    texts = payloads()
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    for number, text in enumerate(texts):
        result = a_result(id=f"{number:012x}", name=text, created=f"1999-01-01T00:00:00.{number:06}")
        store.put(result, headline=text)
        store.tag(result.id, add=(text[:50].strip() or "x",))
    paths = [f"/results/{number:012x}" for number in range(0, len(texts), 10)]
    following = "/results?before=1999-01-02"
    while following:
        page.goto(address + following)
        assert page.evaluate("window.ran") is None
        assert not page.locator("main").locator("img, iframe, base, svg, embed, math, object").count()
        older = page.get_by_role("link", name="Older")
        following = older.get_attribute("href") if older.count() else ""
        paths.append(following) if following else None
    for path in (*paths, "/", "/trends"):
        page.goto(address + path)
        assert page.evaluate("window.ran") is None
        assert page.evaluate("window.broken") == []
        assert not page.evaluate(
            "[...document.querySelectorAll('*')]"
            ".some((e) => [...e.attributes].some((a) => /^on/i.test(a.name)))"
        )

    assert page.messages == []
    assert [url for url in urls if not url.startswith((address, "data:,"))] == []
    for number in range(len(texts)):
        store.remove(f"{number:012x}")


def test_an_attacking_name_does_nothing(page: Any, address: str) -> None:
    """Wherever it is shown."""
    for path in ("/results", f"/results/{'e' * 12}", f"/compare?with={'e' * 12}", f"/results?name={HOSTILE}"):
        page.goto(address + path)
        page.wait_for_timeout(200)
        assert page.messages == []
        assert page.locator("main img").count() == 0


def test_a_page_follows_the_store(page: Any, address: str, store: Store) -> None:
    """What is stored appears within two seconds, sorted tables stay sortable, and what is ticked stays."""
    page.goto(f"{address}/results")
    page.wait_for_timeout(1000)
    put(store, a_result(id="abcabcabcabc", created="2030-01-01"))
    page.get_by_role("cell", name="abcabc").wait_for(timeout=2000)

    page.get_by_role("checkbox", name="abcabc").check()
    put(store, a_result(id="dededededede", created="2031-01-01"))
    page.wait_for_timeout(1500)
    assert page.get_by_role("checkbox", name="abcabc").is_checked()

    page.get_by_role("checkbox", name="abcabc").uncheck()
    page.locator("h1").click()
    page.get_by_role("cell", name="dedede").wait_for(timeout=2000)


def test_what_another_process_stores_appears(page: Any, address: str, store: Store) -> None:
    """As a profile that was started on the command line."""
    page.goto(f"{address}/")
    page.wait_for_timeout(1000)
    code = (
        "from modeldyno.base import plugins\n"
        "from modeldyno.testing.sample_results import a_result\n"
        f"with plugins.store('sqlite:///{store.place}') as store:\n"
        "    store.put(a_result(id='f00df00df00d', created='2032-01-01'), headline='fast')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

    page.get_by_role("cell", name="f00df0").wait_for(timeout=2000)


def test_a_load_is_seen_while_it_goes_on(page: Any, address: str, store: Store) -> None:
    """It appears among the loads, its seconds pass, and its Result takes their place by itself."""
    place = {**os.environ, "MODELDYNO_STORE": f"sqlite:///{store.place}"}
    options = ("--input", "x=1x16", "--concurrency", "4", "--duration", "5", "--quiet")
    page.goto(f"{address}/loads")
    with serve_in_subprocess("--service", "constant:0.005") as server:
        program = [
            sys.executable,
            "-m",
            "modeldyno",
            "load",
            f"http://127.0.0.1:{server.port}#echo",
            *options,
        ]
        with subprocess.Popen(program, env=place, stdout=subprocess.DEVNULL) as load:
            page.get_by_role("link", name="echo").click(timeout=60_000)
            page.get_by_text("none is certified").wait_for()
            captions = set()
            while "as it goes on" in page.locator("h1").inner_text():
                captions.add(page.locator("caption").first.inner_text())
                page.wait_for_timeout(200)
            assert load.wait() == 0
    page.get_by_role("link", name="Results").and_(page.locator(".trail a")).wait_for(timeout=10_000)

    assert len(captions) >= 3
    assert page.messages == []
    assert page.evaluate("window.broken") == []


def test_tokens_of_a_load_are_seen_as_they_come(page: Any, address: str, store: Store) -> None:
    """Without a reload, as the page keeps what a script wrote into it."""
    place = {**os.environ, "MODELDYNO_STORE": f"sqlite:///{store.place}"}
    options = ("--set", "endpoint=chat", "--set", "max_tokens=32", "-c", "4", "--duration", "6", "--quiet")
    seen = []
    page.goto(f"{address}/loads")
    with serve_in_subprocess("--service", "constant:0.005", "--workers", "4", "--pace", "0.01") as server:
        url = f"http://127.0.0.1:{server.port}/v1#streamer"
        program = [sys.executable, "-m", "modeldyno", "load", url, *options]
        with subprocess.Popen(program, env=place, stdout=subprocess.DEVNULL) as load:
            page.get_by_role("link", name="streamer").click(timeout=60_000)
            page.locator(".tiles dd").first.wait_for()
            page.evaluate("window.kept = true")
            while "as it goes on" in page.locator("h1").inner_text():
                figures = page.locator(".tiles > div").all_inner_texts()
                seen.append(dict(text.split("\n")[:2] for text in figures))
                drawn = page.locator("svg.time text.title").all_text_contents()
                assert page.evaluate("window.kept")
                page.wait_for_timeout(500)
                if len(seen) > 9:
                    break
            assert load.wait() == 0

    assert drawn[:2] == ["Tokens, provisional (/s)", "First token, provisional (ms)"]
    rates = [float(one["tokens"].removesuffix("/s")) for one in seen if "tokens" in one]
    assert any(330 < rate < 430 for rate in rates), (
        "four users, a token each 10 ms, and 5 ms before the first"
    )
    assert len({str(one) for one in seen}) >= 3
    assert page.messages == []


def test_a_page_is_read_without_scripts(chromium: Any, address: str) -> None:
    """Tables, forms and links need none; a form that writes works."""
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{address}/results/010101010101")
    page.get_by_label("Tag").fill("by hand")
    page.get_by_role("button", name="Add tag").click()

    assert page.get_by_role("link", name="tag: by hand").count() == 1
    page.goto(f"{address}/results")
    for name in ("1d1d1d", "1c1c1c"):
        page.get_by_role("checkbox", name=name).check()
    page.get_by_role("button", name="side by side").click()
    assert page.locator("h1").inner_text().endswith("side by side")
    assert len(links_of(page.content())) > 5
    context.close()


def test_a_view_is_saved_by_a_name(page: Any, address: str) -> None:
    """It brings back the filter and the columns, also after a reload, and can be removed."""
    page.goto(f"{address}/results?where=batch_size+%3D+8&columns=created%2C+latency.p50")
    page.get_by_text("Saved views (0)").click()
    page.get_by_label("Name of this view").fill("the <b>fast</b> ones")
    page.get_by_role("button", name="Save").click()
    page.goto(f"{address}/results")
    page.get_by_text("Saved views (1)").click()
    page.get_by_role("link", name="the <b>fast</b> ones").click()

    assert page.get_by_label("Where").input_value() == "batch_size = 8"
    assert page.get_by_role("columnheader", name="latency.p50").count() == 1
    page.get_by_text("Saved views (1)").click()
    page.get_by_role("button", name="Remove the view").click()
    assert page.get_by_text("Saved views (0)").count() == 1
    assert page.messages == []
    assert page.evaluate("window.broken") == []


def test_a_slider_moves_by_keys_and_the_ranking_follows(page: Any, address: str) -> None:
    """The number and the address change with it, and what is below the form is the answer to them."""
    page.goto(f"{address}/models/digits/answer?p99=20")
    slider = page.get_by_role("slider", name="Latency")
    slider.focus()
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    number = page.get_by_role("spinbutton", name="Latency").input_value()
    page.wait_for_url(f"**?p99={number}")

    assert float(number) < 20
    page.get_by_text(f"surely holds latency.p99 <= {number} ms").first.wait_for(timeout=2000)
    assert page.evaluate("document.activeElement.type") == "range"
    assert page.messages == []


def test_the_keyboard_reaches_the_content(page: Any, address: str) -> None:
    """The first stop leads past the navigation."""
    page.goto(f"{address}/models")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")

    assert page.evaluate("document.activeElement.id") == "main"
