"""ModelCI's rule for a model's path: ``<architecture>/<framework>-<engine>/<task>/<version>.<suffix>``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath

from modeldyno.errors import RequestError

_KIND = re.compile(r"(?P<framework>[a-z]+)-(?P<engine>[a-z0-9]+)")
_PARTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCiPath:
    """What the path of a model in ModelCI's folder says."""

    architecture: str
    framework: str
    """pytorch, tensorflow, onnx, sklearn, xgboost or lightgbm."""
    engine: str
    """none, onnx, torchscript, tfs, trt, tvm or custom."""
    task: str
    """With spaces, such as ``image classification``; underscores in the path."""
    version: int
    suffix: str = ""
    """With its dot; empty for a folder."""

    @classmethod
    def parse(cls, path: PurePath) -> ModelCiPath | None:
        """Read a path by its last four parts; None if it does not follow the rule."""
        if len(path.parts) < _PARTS:
            return None
        architecture, kind, task, file = path.parts[-_PARTS:]
        match = _KIND.fullmatch(kind.lower())
        name = PurePath(file)
        if match is None or not name.stem.isascii() or not name.stem.isdigit() or not int(name.stem):
            return None
        return cls(
            architecture=architecture,
            framework=match["framework"],
            engine=match["engine"],
            task=task.replace("_", " "),
            version=int(name.stem),
            suffix=name.suffix,
        )

    def path(self, root: PurePath) -> PurePath:
        """Return the path below ModelCI's folder; the inverse of `parse`.

        Raises:
            RequestError: a part would lead elsewhere.
        """
        parts = (
            self.architecture,
            f"{self.framework}-{self.engine}",
            self.task.replace(" ", "_"),
            f"{self.version}{self.suffix}",
        )
        if any(part in {"", ".", ".."} or "/" in part or "\0" in part for part in parts):
            raise RequestError(f"A part of '{'/'.join(parts)}' is empty, or leads elsewhere.")
        return root.joinpath(*parts)
