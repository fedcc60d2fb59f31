"""Names of devices: which is the processor, and which have published peaks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import inf

from modeldyno.base.errors import UnknownName

_TERA = 10**12
_GIGA = 10**9

_WIDER = {
    "float4": "float8", "int4": "int8", "int8": "float16", "float8": "float16",
    "float16": "float32", "bfloat16": "float32", "tf32": "float32", "float32": "float64",
}  # fmt: skip
_SIGNED = {"uint8": "int8", "uint4": "int4", "quint4x2": "int4"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePeaks:
    """The peaks of a device."""

    name: str
    flops: dict[str, float]
    """Dtype to operations per second of dense matrix products; ``tf32`` is a mode of float32 products.
    Products of 16 bits and fewer accumulate in 32, as frameworks require."""
    bandwidth: float
    """Bytes per second of its memory."""
    memory: int
    """Bytes, as published: 1 GB is 10^9 bytes."""
    source: str
    busy: bool = False
    """Whether its peaks were measured beside other work, so that they may be too low."""

    def peak(self, dtype: str) -> float:
        """Return its peak operations per second in a dtype; infinite if unknown.

        A dtype without an own peak uses that of the next wider one that holds all its values: float4 - float8
        - float16 - float32 - float64, int4 - int8 - float16, bfloat16 and tf32 - float32. If there is none,
        the fastest floating-point peak is the bound: more bits are not faster. Any other dtype counts as
        float32, as does float64 on a device without a peak for it. For float32 it is the faster of float32
        and tf32, which cuDNN's convolutions use by default.
        """
        table_dtype = self._table_dtype(dtype)
        while table_dtype not in self.flops and table_dtype in _WIDER:
            table_dtype = _WIDER[table_dtype]
        if table_dtype in self.flops:
            tf32_rate = self.flops.get("tf32", 0.0) if table_dtype == "float32" else 0.0
            return max(self.flops[table_dtype], tf32_rate)
        return max((rate for name, rate in self.flops.items() if not name.startswith("int")), default=inf)

    def _table_dtype(self, dtype: str) -> str:
        head = dtype.partition("_")[0]
        name = _SIGNED.get(head, head)
        return name if name in _WIDER or name in self.flops else "float32"


def is_cpu(device: str) -> bool:
    """Return whether a device is the processor, by a framework's name: cpu, cpu:0, CPU:0, TFRT_CPU_0."""
    return "cpu" in re.split("[^a-z]+", device.lower())


def find_device(name: str) -> DevicePeaks:
    """Find a device in the table, ignoring case, spaces and dashes.

    Raises:
        UnknownName: it is not there. No other is suggested, because similar names are different devices.
    """
    devices = {_normalised_name(each): device for each, device in DEVICES.items()}
    device = devices.get(_normalised_name(name))
    if device is None:
        known_names = ", ".join((*DEVICES, "here"))
        raise UnknownName(f"There is no device '{name}' in the table; known: {known_names}.")
    return device


def _normalised_name(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def _row(name: str, bandwidth: float, memory: float, source: str, **flops: float) -> tuple[str, DevicePeaks]:
    return name, DevicePeaks(
        name=name,
        flops={dtype: rate * _TERA for dtype, rate in flops.items()},
        bandwidth=bandwidth * _GIGA,
        memory=round(memory * _GIGA),
        source=source,
    )


_HOPPER = {
    "float64": 66.9, "float32": 66.9, "tf32": 494.7, "float16": 989.4, "bfloat16": 989.4,
    "float8": 1978.9, "int8": 1978.9,
}  # fmt: skip
_AMPERE = {
    "float64": 19.5, "float32": 19.5, "tf32": 156, "float16": 312, "bfloat16": 312, "int8": 624,
}  # fmt: skip

# Name, GB/s, GB, source, then 10^12 operations per second by dtype: dense, that is half of what data sheets
# print with sparsity. float64 and float32 are of matrix units where those are faster.
DEVICES: dict[str, DevicePeaks] = dict(
    (
        _row("h100", 3350, 80, "NVIDIA H100 architecture white paper, H100 SXM5", **_HOPPER),
        _row(
            "h100-pcie", 2000, 80, "NVIDIA H100 data sheet, H100 PCIe",
            float64=51, float32=51, tf32=378, float16=756.5, bfloat16=756.5, float8=1513, int8=1513,
        ),
        _row("h200", 4800, 141, "NVIDIA H200 data sheet, H200 SXM", **_HOPPER),
        _row(
            "b200", 7700, 180, "NVIDIA Blackwell data sheet, HGX B200",
            float64=37, float32=75, tf32=1100, float16=2250, bfloat16=2250, float8=4500, int8=4500,
            float4=9000,
        ),
        _row("a100", 2039, 80, "NVIDIA A100 data sheet, A100 80GB SXM", **_AMPERE),
        _row("a100-40gb", 1555, 40, "NVIDIA A100 data sheet, A100 40GB SXM", **_AMPERE),
        _row(
            "l4", 300, 24, "NVIDIA L4 data sheet",
            float32=30.3, tf32=60, float16=121, bfloat16=121, float8=242.5, int8=242.5,
        ),
        _row(
            "l40s", 864, 48, "NVIDIA L40S data sheet",
            float32=91.6, tf32=183, float16=362.05, bfloat16=362.05, float8=733, int8=733,
        ),
        _row(
            "a10", 600, 24, "NVIDIA A10 data sheet",
            float32=31.2, tf32=62.5, float16=125, bfloat16=125, int8=250,
        ),
        _row("t4", 320, 16, "NVIDIA T4 product brief", float32=8.1, float16=65, int8=130),
        _row(
            "v100", 900, 32, "NVIDIA V100 data sheet, V100 SXM2 32GB",
            float64=7.8, float32=15.7, float16=125,
        ),
        _row(
            "rtx3090", 936, 24, "NVIDIA Ampere GA102 architecture white paper",
            float32=35.6, tf32=35.6, float16=71, bfloat16=71, int8=284,
        ),
        _row(
            "rtx4090", 1008, 24, "NVIDIA Ada architecture white paper",
            float32=82.6, tf32=82.6, float16=165.2, bfloat16=165.2, float8=330.3, int8=660.6,
        ),
        _row(
            "rtx5090", 1792, 32, "NVIDIA RTX Blackwell architecture white paper",
            float32=104.8, tf32=104.8, float16=209.5, bfloat16=209.5, float8=419, int8=838,
        ),
        _row(
            "mi300x", 5300, 192, "AMD Instinct MI300X data sheet",
            float64=163.4, float32=163.4, tf32=653.7, float16=1307.4, bfloat16=1307.4, float8=2614.9,
            int8=2614.9,
        ),
        _row(
            "mi250", 3276.8, 128, "AMD Instinct MI250 data sheet",
            float64=90.5, float32=90.5, float16=362.1, bfloat16=362.1, int8=362.1,
        ),
        _row(
            "tpu-v4", 1200, 32, "Jouppi et al., TPU v4, ISCA 2023, and Google Cloud TPU v4",
            bfloat16=275, int8=275,
        ),
        _row("tpu-v5e", 819, 16, "Google Cloud TPU v5e", bfloat16=197, int8=393),
        _row("tpu-v5p", 2765, 95, "Google Cloud TPU v5p", bfloat16=459, int8=918),
    )
)  # fmt: skip
