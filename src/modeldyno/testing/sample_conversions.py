"""A small conversion: one form that agrees, one that is close, one that differs, one that failed."""

from __future__ import annotations

from dataclasses import replace

from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.conversion.agreement.agreement import (
    FirstDifference,
    ModelAgreement,
    OutputFigures,
    TopAgreement,
)
from modeldyno.conversion.agreement.conversion import (
    Conversion,
    ConversionFailure,
    ConversionFailureKind,
    Converted,
)
from modeldyno.conversion.agreement.inner_values import End
from modeldyno.conversion.agreement.rule import Equivalence


def an_agreement(verdict: Equivalence = Equivalence.AGREES, error: float = 4.5e-7) -> ModelAgreement:
    """Return an agreement of one output."""
    off = f"it is off by {error:.2g} where 1e-05 is allowed, at batch=32"
    figures = OutputFigures(
        output="scores",
        verdict=verdict,
        reason="" if verdict is Equivalence.AGREES else off,
        values=360,
        largest=error,
        relative=error,
        error=error,
        bound=1e-5,
        floor=2e-7,
        cosine=0.9995,
        top=TopAgreement(same=36, of=36, low=0.904),
    )
    return ModelAgreement(
        verdict=verdict,
        sentence=f"{verdict}: output 'scores': {off}",
        outputs=(figures,),
        samples=36,
        calls=("batch=32", "batch=3", "batch=1"),
        floors=("float64", "another batch"),
    )


def a_conversion() -> Conversion:
    """Return a conversion of a network into five forms."""
    place = FirstDifference(
        sentence="first differs at encoder.dense (Linear): cosine 0.41 (its inputs agree)",
        layer="encoder.dense",
        kind="Linear",
        end=End.OUTPUT,
        after="encoder.query",
        inputs_agree=True,
        cosine=0.41,
        error=0.8,
        bound=1e-5,
        compared=5,
        layers=9,
        call="batch=3",
    )
    differs = replace(an_agreement(Equivalence.DIFFERS, 0.3), first=place)
    return Conversion(
        id="c0ffee000001",
        created="2026-01-02T03:04:05.678+00:00",
        source="torch:net.py:make",
        model=ModelIdentity(name="net.make", digest=f"sha256:{64 * '0'}", framework="torch"),
        inputs=(InputSpec(name="x", shape=("batch", 8), dtype="float32"),),
        software={"torch": "2.9.0"},
        converted=(
            Converted(
                recipe="onnx",
                options={"opset": 18},
                converter="torch.onnx 2.9.0",
                path="net-converted/onnx/model.onnx",
                digest=f"sha256:{64 * '1'}",
                size=62_996,
                seconds=12.5,
                agreement=an_agreement(),
                reproduce="net-converted/onnx/reproduce.py",
            ),
            Converted(
                recipe="onnx-int8",
                path="net-converted/onnx-int8/model.onnx",
                size=31_000,
                seconds=13.0,
                agreement=an_agreement(Equivalence.CLOSE, 0.01),
            ),
            Converted(
                recipe="openvino",
                path="net-converted/openvino/model.xml.unchecked",
                size=58_000,
                seconds=9.0,
                agreement=differs,
                failure=ConversionFailure(
                    kind=ConversionFailureKind.OUTPUT_DIFFERS,
                    message="output 'scores': it is off by 0.3",
                    advice="do not use the file",
                ),
            ),
            Converted(
                recipe="torchscript",
                failure=ConversionFailure(
                    kind=ConversionFailureKind.UNSUPPORTED_OPERATOR,
                    message="aten.fold is not supported",
                    advice="replace the operator",
                    operators=("aten.fold",),
                    log="Traceback\nRuntimeError: aten.fold",
                ),
            ),
        ),
    )
