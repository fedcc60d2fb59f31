"""Pages that several ask for at about the same time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial

from modeldyno.dashboard.shared_pages import SharedPages


@dataclass
class Bench:
    """Shared pages with a clock and a mark of their own, and how often each was made."""

    now: float = 100.0
    mark: str = "a"
    made: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pages: SharedPages[str] = SharedPages(
            mark=lambda: self.mark, moment=0.25, clock=lambda: self.now
        )

    async def make(self, name: str = "models") -> str:
        """Make a page."""
        self.made.append(name)
        number = len(self.made)
        await asyncio.sleep(0.001)
        return f"{name} {number}"

    async def ask(self, *names: str, newest: bool = True) -> list[str]:
        """Ask for pages at once."""
        pending = (self.pages.page(name, partial(self.make, name), newest=newest) for name in names)
        return await asyncio.gather(*pending)

    def read(self, *names: str, newest: bool = True) -> list[str]:
        """Do the same, from nothing that runs, and wait for what is made behind those who ask."""

        async def ask() -> list[str]:
            answer = await self.ask(*names, newest=newest)
            await asyncio.gather(*self.pages._making.values())
            return answer

        return asyncio.run(ask())


def test_fifty_who_ask_at_once_are_given_one_page() -> None:
    """It is made once; another page is another one."""
    bench = Bench()

    assert bench.read(*["models"] * 50, "tasks") == ["models 1"] * 50 + ["tasks 2"]
    assert bench.made == ["models", "tasks"]


def test_a_page_is_made_anew_when_its_moment_is_over() -> None:
    """Whoever asks a moment later is given the same one, and nothing old is kept."""
    bench = Bench()
    bench.read("models", "tasks")
    bench.now += 0.1
    assert bench.read("models") == ["models 1"]
    bench.now += 0.2

    assert bench.read("models") == ["models 3"]
    bench.now += 2.0
    assert bench.read("tasks") == ["tasks 4"]
    assert len(bench.pages._made) == 1


def test_a_page_is_made_anew_when_the_store_has_changed() -> None:
    """As a page that follows the store has been told: it must not be given what was before."""
    bench = Bench()
    bench.read("models")
    bench.mark = "b"

    assert bench.read("models") == ["models 2"]


def test_whoever_does_not_follow_does_not_wait_while_it_is_made_anew() -> None:
    """He is given what was made within the last second, and the next one the new page."""
    bench = Bench()
    bench.read("models")
    bench.mark = "b"
    bench.now += 0.9

    assert bench.read("models", newest=False) == ["models 1"]
    assert bench.read("models", newest=False) == ["models 2"]
    bench.now += 1.1
    assert bench.read("models", newest=False) == ["models 3"]


def test_an_error_behind_somebody_is_nobodys() -> None:
    """The page that was made before is shown, and the next one who asks tries again."""
    bench = Bench()
    bench.read("models")
    bench.mark = "b"

    async def fail() -> str:
        raise OSError

    async def meanwhile() -> list[str]:
        page = await bench.pages.page("models", fail)
        await asyncio.sleep(0.01)
        return [page, *await bench.ask("models")]

    assert asyncio.run(meanwhile()) == ["models 1", "models 2"]


def test_what_was_written_here_is_seen_at_once() -> None:
    """Also if a page was being made meanwhile: it may be from before, and is given to nobody else."""
    bench = Bench()

    async def write_meanwhile() -> list[str]:
        first = asyncio.create_task(bench.ask("models"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        bench.pages.forget()
        return [*await first, *await bench.ask("models")]

    assert asyncio.run(write_meanwhile()) == ["models 1", "models 2"]


def test_a_page_that_fails_is_tried_again() -> None:
    """And the next one who asks does not wait for ever."""
    bench = Bench()

    async def fail() -> str:
        raise OSError

    async def twice() -> list[object]:
        failed = [bench.pages.page("models", fail) for _ in range(2)]
        return [*await asyncio.gather(*failed, return_exceptions=True), *await bench.ask("models")]

    first, second, third = asyncio.run(twice())
    assert isinstance(first, OSError)
    assert isinstance(second, OSError)
    assert third == "models 1"
