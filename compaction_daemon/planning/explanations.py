"""Why each file is rewritten or left alone, and what each partition owes: the reasons of a plan."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidelog.compaction_daemon.planning.candidates import MIN_DEAD_SHARE
from tidelog.compaction_daemon.planning.decisions import OPEN_COST_BYTES, REFUSALS, TAKEN, Decisions
from tidelog.compaction_daemon.planning.groups import Chosen
from tidelog.compaction_daemon.planning.plan import MAJOR, MINOR, FileReason, ScopeDebt
from tidelog.compaction_daemon.planning.request import AUTO_LEVEL, CompactionRequest
from tidelog.log import Snapshot
from tidelog.log.arrays import Int64Array

# A plan is read by people, and kept in status pages. The partitions with the most debt to remove come first.
MAX_SCOPES_SHOWN = 100


class Explanations:
    """The reasons of one plan. `waits` says how long MAJOR waits for each partition, in ms; 0 where it does not."""

    def __init__(self, decisions: Decisions, chosen: Chosen, request: CompactionRequest, waits: Int64Array) -> None:
        self._decisions = decisions
        self._files = decisions.files
        self._chosen = chosen
        self._request = request
        self._waits = waits

    # --- files

    def files(self, snapshot: Snapshot) -> tuple[FileReason, ...]:
        """The reason of each live file, in log order."""
        paths: list[str] = snapshot.files()["path"].to_pylist()
        reasons, taken = self._file_reasons()
        if self._request.where is None:
            return tuple(map(FileReason, paths, taken, reasons))
        inside = dict(zip(self._files.table["path"].to_pylist(), zip(taken, reasons, strict=True), strict=True))
        outside = (False, "not in the partitions asked for")
        return tuple(FileReason(path, *inside.get(path, outside)) for path in paths)

    def _file_reasons(self) -> tuple[list[str], list[bool]]:
        """For each file of the partitions asked for: why, and whether it is rewritten."""
        files, decisions = self._files, self._decisions
        taken = np.zeros(len(files.sizes), dtype=bool)
        taken[self._chosen.files] = True
        decided = np.full(len(files.sizes), -1)

        decided[decisions.candidates] = np.repeat(decisions.refused, decisions.counts)
        reasons = np.full(len(files.sizes), "large enough", dtype=object)
        for code, text in enumerate(REFUSALS):
            reasons[decided == code] = text
        special = (decided < 0) & ((files.dead_rows > 0) | files.unclustered | self._decisions.rules.clusters)
        for number in np.flatnonzero(special).tolist():
            reasons[number] = self._why_not(number)
        due = decided == TAKEN
        packed = due & ~decisions.rules.is_major[files.scopes] & ~files.all_dead
        reasons[packed] = "small"
        for number in np.flatnonzero(due & ~packed).tolist():
            reasons[number] = self._why(number)
        reasons[due & ~taken] += "; left to a later plan"
        return reasons.tolist(), taken.tolist()

    def _why(self, number: int) -> str:
        """Why a file is dropped, or rewritten by MAJOR."""
        files = self._files
        if files.all_dead[number]:
            return "all of its rows are dead"
        found = ["small"] if files.small[number] else []
        dead, rows = int(files.dead_rows[number]), int(files.rows[number])
        if self._request.purge and dead:
            found.append("has dead rows to purge")
        elif dead and self._decisions.worth[number] and not (rows > 0 and dead < MIN_DEAD_SHARE * rows):
            found.append(f"{dead} {f'of its {rows}' if rows > 0 else 'of an unknown number of'} rows are dead")
        if files.unclustered[number]:
            found.append(f"not clustered by {', '.join(self._request.cluster_by)} yet")
        return ", ".join(found)

    def _why_not(self, number: int) -> str:
        """Why a large file is left alone that has dead rows, or that MAJOR could cluster."""
        files = self._files
        if not self._is_major(number):
            waits = self._request.level == AUTO_LEVEL and files.worth(purge=self._request.purge)[number]
            return f"large enough for now; {self._waiting(files.scopes[number])}" if waits else "large enough"
        few = ", with few dead rows" if files.dead_rows[number] else ""
        clustered = f", clustered by {', '.join(self._request.cluster_by)}" if self._request.cluster_by else ""
        return f"large enough{few}{clustered}"

    def _is_major(self, number: int) -> bool:
        return bool(self._decisions.rules.is_major[self._files.scopes[number]])

    def _waiting(self, scope: int) -> str:
        return f"major waits for another {self._waits[scope] / 1000:.0f} s without a commit to the partition"

    # --- partitions

    def scopes(self) -> tuple[ScopeDebt, ...]:
        """The partitions with something to do, the best first, then those with the most debt; no others."""
        files, decisions = self._files, self._decisions
        due = decisions.refused == TAKEN
        gains, cost, groups = (
            np.bincount(decisions.scopes[due], weights=values[due], minlength=files.num_scopes)
            for values in (decisions.gains, decisions.cost, np.ones(len(due)))
        )
        scores = gains / np.maximum(1, cost)
        sums = {
            "files": np.bincount(files.scopes, minlength=files.num_scopes),
            "small_files": files.sum_by_scope(files.small),
            "small_bytes": files.sum_by_scope(np.where(files.small, files.sizes, 0)),
            "dead_rows": files.sum_by_scope(files.dead_rows),
            "dead_bytes": files.sum_by_scope(files.dead_bytes),
            "unclustered_files": files.sum_by_scope(files.unclustered),
        }
        live = files.sum_by_scope(files.sizes) - sums["dead_bytes"]
        needed = np.maximum(1, np.ceil(live / decisions.rules.target))
        debt = (sums["files"] - needed) * OPEN_COST_BYTES + sums["dead_bytes"] + sums["unclustered_files"]
        order = np.lexsort((-debt, -scores))[:MAX_SCOPES_SHOWN]
        order = order[(scores[order] > 0) | (debt[order] > 0)]
        partitions = files.table["partitionValues"].take(pa.array(files.first_of(order))).to_pylist()
        return tuple(
            ScopeDebt(
                partition_values=dict(values or ()),
                **{name: int(column[scope]) for name, column in sums.items()},
                read_amplification=round(float(sums["files"][scope] / needed[scope]), 2),
                groups=int(groups[scope]),
                score=round(float(scores[scope]), 3),
                reason=self._scope_reason(scope, int(groups[scope])),
            )
            for scope, values in zip(order.tolist(), partitions, strict=True)
        )

    def _scope_reason(self, scope: int, groups: int) -> str:
        found = []
        if groups:
            level = MAJOR if self._decisions.rules.is_major[scope] else MINOR
            found.append(f"{groups:,} {'group' if groups == 1 else 'groups'} for {level}")
        else:
            found.append("nothing is worth a rewrite now")
        if self._request.level == AUTO_LEVEL and self._waits[scope]:
            early = "major does not wait, because half of the partition is dead"
            found.append(early if self._decisions.rules.is_major[scope] else self._waiting(scope))
        return "; ".join(found)
