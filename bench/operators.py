"""MACs of one operator at a time: the truth in closed form, ours, and other tools in the same run.

``=`` is the truth. A number is wrong; with a ``?`` behind it, the tool said that it left operators out.
The status is 1 where ours is wrong and says nothing.

    python bench/operators.py [--only conv] [--alone]
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import peers
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.operator_cases import CASES, OperatorCase

import modeldyno

if TYPE_CHECKING:
    from torch import nn

OURS = "ModelDyno"
EXACT = "exact, of those with MACs"
NEAR = "within 10 %, of those with MACs"


def ours(module: nn.Module, args: tuple[Any, ...]) -> peers.Found:
    """Give our MACs, and what we say has no formula."""
    result = modeldyno.inspect(module, example=args, inline=True)  # type: ignore[attr-defined]
    uncounted = [operator.kind for operator in result.outline.operators if not operator.counted]
    return result["macs"] or 0, tuple(uncounted)


def ask(tool: str, case: OperatorCase) -> peers.Answer:
    """Ask one tool about one case, freshly built."""
    with peers.quiet():
        module, args = case.build()
    if tool == OURS:
        return peers.answer(lambda: ours(module, args))
    return peers.ask(tool, module, args)


def judge(answer: peers.Answer, truth: int | None) -> str:
    """Say how good an answer is."""
    if answer.error:
        return "error"
    if truth is not None and answer.macs == truth:
        return "exact"
    return "listed" if answer.uncounted else "wrong"


def cell(answer: peers.Answer, truth: int | None) -> str:
    """Show an answer."""
    if answer.error:
        return answer.error[:13]
    if truth is not None and answer.macs == truth:
        return "="
    return f"{answer.macs:,}{'?' if answer.uncounted else ''}"


def main() -> int:
    """Ask all tools about all cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="", help="part of the names of cases")
    parser.add_argument("--alone", action="store_true", help="without the other tools")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tools = [OURS] if hasattr(modeldyno, "inspect") else []
    tools += [] if options.alone else peers.installed_tools()
    cases = [case for case in CASES if options.only in case.name]
    for tool in tools:
        ask(tool, CASES[0])  # the first call imports and compiles
    tally: dict[str, Counter[str]] = {tool: Counter() for tool in tools}
    seconds: Counter[str] = Counter()
    with_macs = sum(bool(case.macs) for case in cases)
    print(f"{'':<40}{'truth':>10}" + "".join(f"{tool:>14}" for tool in tools))
    for case in cases:
        truth = "uncounted" if case.macs is None else f"{case.macs:,}"
        answers = {tool: ask(tool, case) for tool in tools}
        print(f"{case.name:<40}{truth:>10}" + "".join(f"{cell(a, case.macs):>14}" for a in answers.values()))
        for tool, answer in answers.items():
            verdict = judge(answer, case.macs)
            tally[tool][verdict] += 1
            tally[tool][EXACT] += verdict == "exact" and bool(case.macs)
            tally[tool][NEAR] += bool(case.macs and answer.macs and abs(answer.macs / case.macs - 1) <= 0.1)
            seconds[tool] += answer.seconds
    print(f"\n{len(cases)} cases, {with_macs} of them with MACs")
    for verdict in ("exact", "wrong", "listed", "error", EXACT, NEAR):
        print(f"{verdict:<50}" + "".join(f"{tally[tool][verdict]:>14}" for tool in tools))
    print(f"{'seconds of processor time':<50}" + "".join(f"{seconds[tool]:>14.2f}" for tool in tools))
    return 1 if OURS in tally and tally[OURS]["wrong"] + tally[OURS]["error"] else 0


if __name__ == "__main__":
    sys.exit(main())
