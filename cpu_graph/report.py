"""What the stand-in has to say of a program at its end: in a screen of text, and as objects."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Self

from cpu_graph.device import Device
from cpu_graph.hints import CaptureRecord, Finding

NOT_LOOKED_AT = (
    "Not looked at: time, other processes, faults inside of a kernel, what torch.compile makes, "
    "values that no tensor holds, and whether results are those of the eager step: capturable "
    "compare tells that."
)
MOST_LINES = 12  # of graphs, and of findings


@dataclass
class Report:
    """The captures of a program, what it launched ("graphs" and "operators" outside of them), and
    what can make its results wrong.
    """

    captures: list[CaptureRecord]
    launches: Counter
    findings: list[Finding]

    @classmethod
    def of(cls, device: Device) -> Self:
        """The report of a stand-in, so far."""
        return cls(list(device.captures), device.launches.copy(), list(device.findings))

    def __str__(self) -> str:
        lines = [self._totals(), *_cap_lines(self._graphs(), "lines of graphs")]
        if self.findings:
            lines.append(f"Can make results wrong: {len(self.findings)}")
            lines += _cap_lines(
                [f"  {each.kind}: {each.sentence}" for each in self.findings], "findings"
            )
        return "\n".join([*lines, NOT_LOOKED_AT])

    def _totals(self) -> str:
        replays = sum(captured.replays for captured in self.captures)
        return (
            f"Graphs: {len(self.captures)} captured, {replays} replays; "
            f"{self.launches['operators']} operators were launched outside of them."
        )

    def _graphs(self) -> list[str]:
        """A line for the graphs that one line of the program has captured."""
        groups = defaultdict(list)
        for captured in self.captures:
            groups[captured.where].append(captured)
        return [line for where, group in groups.items() for line in _lines_of_group(where, group)]


def _lines_of_group(where: str, group: list[CaptureRecord]) -> list[str]:
    launches = sorted({captured.launches for captured in group})
    each = str(launches[0]) if len(launches) == 1 else f"{launches[0]} to {launches[-1]}"
    name = f"graph {group[0].number}" if len(group) == 1 else f"{len(group)} graphs"
    replays = sum(captured.replays for captured in group)
    line = f"  {name}, captured at {where}: {each} launches per replay, {replays} replays"
    idle = [str(captured.number) for captured in group if not captured.replays]
    if idle:
        line += "; never replayed" if len(group) == 1 else f"; {len(idle)} of them never replayed"
    remarks = dict.fromkeys(remark for captured in group for remark in captured.remarks)
    return [line, *(f"    {remark}" for remark in remarks)]


def _cap_lines(lines: list[str], what: str) -> list[str]:
    more = len(lines) - MOST_LINES
    return lines if more <= 1 else [*lines[:MOST_LINES], f"  and {more} more {what}"]
