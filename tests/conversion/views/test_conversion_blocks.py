"""A conversion on a screen: a line for each form, and what to do about failures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modeldyno.base import plugins
from modeldyno.base.report.blocks import Notice, Severity, Table
from modeldyno.conversion.views.blocks import blocks, brief, headline, numbers, page
from modeldyno.profiling.views import ViewOptions
from modeldyno.testing.sample_conversions import a_conversion


def text(*, verbose: bool = False) -> str:
    """Return what a terminal of 80 columns shows."""
    return plugins.terminal().text(blocks(a_conversion(), ViewOptions(verbose=verbose)))


def test_the_headline_counts_verdicts() -> None:
    """Close is not agreeing, and a file that differs is not a failure of the exporter."""
    conversion = a_conversion()

    assert headline(conversion) == (
        "net.make: 1 of 4 converted forms agrees with it, 1 is close, as declared, 1 differs, 1 failed."
    )
    assert headline(replace(conversion, converted=conversion.converted[:1])) == (
        "net.make: 1 of 1 converted form agrees with it."
    )
    close = tuple(made for made in conversion.converted if made.usable and made not in conversion.agreeing)
    assert headline(replace(conversion, converted=close)) == (
        "net.make: 0 of 1 converted form agrees with it, 1 is close, as declared."
    )
    assert headline(replace(conversion, model=None, converted=())).startswith("torch:net.py:make: 0 of 0")


def test_a_list_has_the_sentence_without_the_name() -> None:
    """The name has a column of its own there."""
    conversion = a_conversion()

    assert headline(conversion) == f"{conversion.name}: {brief(conversion)}."


@pytest.mark.parametrize("verbose", [False, True])
def test_it_fits_80_columns(verbose: bool) -> None:
    """Also with every output."""
    assert max(map(len, text(verbose=verbose).splitlines())) <= 80


def test_each_form_has_its_error_beside_its_bound() -> None:
    """And its size, its time and its file in the common folder."""
    rendered = text()

    assert "4.5e-07  1.0e-05" in rendered
    assert "61.5 KiB" in rendered
    assert "openvino/model.xml.unchecked" in rendered
    assert "in net-converted; reproduce.py beside each makes it again" in rendered


def test_failures_say_what_to_do() -> None:
    """Their logs are shown on request."""
    notices = [block for block in blocks(a_conversion()) if isinstance(block, Notice)]
    failure = next(n for n in notices if n.code == "torchscript unsupported-operator")

    assert (failure.severity, failure.advice, failure.log) == (Severity.FAILURE, "replace the operator", "")
    assert "RuntimeError: aten.fold" in text(verbose=True)


def test_the_first_layer_that_differs_is_told_with_the_failure() -> None:
    """As a sentence of its own."""
    conversion = a_conversion()["openvino"]
    notice = next(
        block for block in blocks(a_conversion()) if isinstance(block, Notice) and "openvino" in block.code
    )

    assert conversion.agreement is not None
    assert notice.text.endswith(
        "off by 0.3. First differs at encoder.dense (Linear): cosine 0.41 (its inputs agree)."
    )


def test_real_samples_and_notes_are_named() -> None:
    """What the check could not see is a doubt."""
    conversion = a_conversion()
    agreement = conversion.converted[0].agreement
    assert agreement is not None
    document = replace(
        conversion,
        inputs=(replace(conversion.inputs[0], source="val.npz"),),
        converted=(
            replace(conversion.converted[0], agreement=replace(agreement, notes=("all alike",), floors=())),
        ),
    )
    notices = [block for block in blocks(document) if isinstance(block, Notice)]

    assert notices[-2].text == "36 samples of val.npz at batch=32, batch=3, batch=1."
    assert (notices[-1].severity, notices[-1].text) == (Severity.DOUBT, "all alike.")


def test_numbers_are_those_of_every_output() -> None:
    """Unrounded; a form without outputs has a row with its verdict."""
    table = numbers(a_conversion())

    assert [row[:3] for row in table.rows] == [
        ("onnx", "scores", "agrees"),
        ("onnx-int8", "scores", "close"),
        ("openvino", "scores", "differs"),
        ("torchscript", "", "unsupported-operator"),
    ]
    assert table.rows[0][3] == "4.5e-07"


def test_a_page_has_the_details_once() -> None:
    """Whether it is verbose or not."""
    for verbose in (False, True):
        tables = [b.title for b in page(a_conversion(), ViewOptions(verbose=verbose)) if isinstance(b, Table)]
        assert tables.count("onnx, by torch.onnx 2.9.0") == 1
