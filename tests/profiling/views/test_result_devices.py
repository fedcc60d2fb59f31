"""How devices and traffic are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.metrics.measurement import Distribution, Interval, Measurement, observed_number
from modeldyno.base.report.blocks import Block, Notice, Severity, Table
from modeldyno.profiling import views
from modeldyno.profiling.views import ViewOptions
from modeldyno.reports import terminal
from modeldyno.testing.sample_results import SAMPLES, a_result

if TYPE_CHECKING:
    from modeldyno.base.result.result import Result

LATENCY = Measurement(metric="latency", value=Distribution.of(SAMPLES))
GIB = 1 << 30


def spread(metric: str, *values: float, scope: str = "cuda:0") -> Measurement:
    return Measurement(metric=metric, value=Distribution.of(values), scope=scope)


CARD = (
    spread("gpu_utilization", 0.8, 0.9),
    spread("device_memory", GIB, 2 * GIB, 1.5 * GIB),
    spread("clock", 1.98e9),
    spread("temperature", 61),
    observed_number("power", 250.0, scope="cuda:0", interval=Interval(low=240.0, high=260.0)),
    observed_number("idle_power", 50.0, scope="cuda:0"),
    observed_number("energy", 0.25, scope="cuda:0"),
)
PACKAGE = (
    observed_number("power", 30.0, scope="package-0"),
    observed_number("energy", 0.05, scope="package-0"),
)


def blocks(*measurements: Measurement, verbose: bool = False) -> tuple[Block, ...]:
    return views.blocks(measured(*measurements), ViewOptions(verbose=verbose))


def measured(*measurements: Measurement) -> Result:
    return a_result(measurements=(LATENCY, *measurements))


def tables(*measurements: Measurement) -> dict[str, Table]:
    return {block.title: block for block in blocks(*measurements) if isinstance(block, Table)}


def notes(*measurements: Measurement, verbose: bool = False) -> list[str]:
    return [
        block.text
        for block in blocks(*measurements, verbose=verbose)
        if isinstance(block, Notice) and block.severity is Severity.NOTE
    ]


def test_a_device_is_a_row() -> None:
    """The mean of what varies, the most of memory, the digits that an interval justifies."""
    by_title = tables(*CARD)["Devices in the timed pass"]
    titles = [column.title for column in by_title.columns]

    assert titles == ["device", "busy", "memory", "clock", "temp", "power", "idle", "energy"]
    assert by_title.rows == (
        ("cuda:0", "85.0%", "2.00 GiB", "1.98 GHz", "61.0 °C", "250 W", "50.0 W", "250 mJ"),
    )


def test_what_no_device_tells_has_no_column() -> None:
    """A processor package knows its power and nothing else; the energies of several are summed."""
    by_title = tables(
        *PACKAGE, observed_number("power", 2.0, scope="dram-0"), observed_number("energy", 0.06)
    )
    table = by_title["Devices in the timed pass"]

    assert [column.title for column in table.columns] == ["device", "power", "energy"]
    assert table.rows == (
        ("package-0", "30.0 W", "50.0 mJ"),
        ("dram-0", "2.00 W", "—"),
        ("all", "", "60.0 mJ"),
    )


def test_devices_are_in_no_other_table() -> None:
    """The results of the model stay what they were, and nothing is shown where nothing was watched."""
    traffic = (
        observed_number("disk_read", 5.0),
        observed_number("network_sent", 5.0),
        spread("device_used", 5.0),
    )

    assert tables(*CARD, *traffic)["Measured"] == tables()["Measured"]
    assert list(tables()) == ["Measured", "How it was measured"]


def test_the_floor_is_told_beside_the_energy() -> None:
    """A reader knows what was subtracted."""
    assert any("above the idle power" in note for note in notes(*CARD, observed_number("energy", 0.25)))


def test_the_energy_of_a_token_is_told_by_phase() -> None:
    """With the reservation that the phases share the power of the pass."""
    token = observed_number("energy_per_token", 0.25)
    texts = notes(*CARD, token, observed_number("energy_per_token", 0.0125, scope="prefill"))
    assert "energy per token: 250 mJ, 12.5 mJ of prefill; all at the mean power of the pass" in texts
    assert not any("idle power" in note for note in notes(*CARD[:5]))


def test_memory_that_only_grew_is_marked() -> None:
    """Where the driver names no process, what all of them grew by stands with a plus."""
    items = (
        spread("gpu_utilization", 0.5),
        spread("device_used", 2 * GIB, 3 * GIB),
        observed_number("device_used", GIB, scope="cuda:0 baseline"),
    )

    assert tables(*items)["Devices in the timed pass"].rows[0][2] == "+2.00 GiB"
    assert any(note.startswith("memory with a +") for note in notes(*items))


def test_a_baseline_alone_is_no_growth() -> None:
    """What cannot be subtracted is not shown."""
    items = (spread("gpu_utilization", 0.5), observed_number("device_used", GIB, scope="cuda:0 baseline"))

    assert tables(*items)["Devices in the timed pass"].rows == (("cuda:0", "50.0%"),)


def test_traffic_is_told_where_there_was_any() -> None:
    """Next to nothing read, nothing said; what everybody sent through the network is for those who ask."""
    quiet = (
        observed_number("disk_read", 0),
        observed_number("disk_written", 0),
        observed_number("major_faults", 0),
    )
    little = (
        observed_number("disk_read", 4096),
        observed_number("disk_written", 0),
        observed_number("major_faults", 1),
    )
    busy = (
        observed_number("disk_read", 3 << 20),
        observed_number("disk_written", 0),
        observed_number("major_faults", 11),
    )
    network = (observed_number("network_received", 2048), observed_number("network_sent", 0))

    assert notes(*quiet, *network) == notes(*little, *network) == []
    assert notes(*busy, *network) == ["the timed pass read 3.00 MiB from disks, had 11 major page faults"]
    assert notes(*quiet, *network, verbose=True)[:2] == [
        "the timed pass read 0 B from disks, wrote 0 B to disks, had 0 major page faults",
        "meanwhile, all processes in this network namespace received 2.00 KiB and sent 0 B",
    ]


def test_what_is_unknown_is_told_to_those_who_ask() -> None:
    """Unavailable is not 0: it is left out, and a verbose report says why."""
    assert notes() == []
    assert [note.partition(":")[0] for note in notes(verbose=True)] == [
        "power and energy are unknown",
        "disk traffic is unknown",
    ]
    assert notes(*CARD[:5], observed_number("disk_read", 0), verbose=True) == [
        "the timed pass read 0 B from disks"
    ]


def test_a_device_fits_a_terminal() -> None:
    """All columns are seen at 80 characters."""
    text_shown = terminal.render(measured(*CARD, *PACKAGE, observed_number("energy", 0.3)))
    lines = str(text_shown).splitlines()
    (title,) = (line for line in lines if line.startswith("device "))

    assert len(title) <= 80
    assert any(line.startswith("cuda:0 ") and line.endswith("250 mJ") for line in lines)
