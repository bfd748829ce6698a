"""An audit that broke off goes on as if nothing had happened, under every condition."""

import json
import os
import subprocess
import sys
from pathlib import Path

import conditions
import pytest
from conditions import CONDITIONS, COUNT, same_verdicts

import classwise
from classwise.attacks.condition import Condition
from classwise.auditing.plan import Plan
from classwise.auditing.run import FIRST, run_audit
from classwise.errors import ClasswiseError
from classwise.record.record import Record

every_row = pytest.mark.parametrize("row", CONDITIONS, ids=str)
every_kept = pytest.mark.parametrize("row", [row for row in CONDITIONS if row.kept], ids=str)
both_norms = pytest.mark.parametrize("norm", conditions.EPS)


WIDTH = 4  # so that pieces are of 2 and then 8, or of 4 images: four at the least
KEPT = {True: 2 * WIDTH, False: FIRST + 2 * WIDTH}  # in two pieces: by batch, and else
# Each starts a process of its own: one of each kind of condition, the others are broken off above.
KILLED = (
    "clean",
    "pgd-3(restarts=3)",
    "square(queries=8)",
    "suite(apgd-ce(steps=2),apgd-t(steps=2),fab-t(steps=2),square(queries=5))",
    "smoothing(sigma=0.3,n=150,n0=20)",
    "conditions:Grain",
    "conditions:Blur>pgd-3",
    "somebody else's attack",
)


def record_in(folder: Path, plan: Plan) -> Record:
    return Record.of(folder, plan.subject, plan.data, recipe="r", weights="given", split="test")


class TestResume:
    """What was broken off and repeated equals the straight audit, row by row."""

    @every_kept
    def test_after_an_error(self, row, tmp_path, monkeypatch):
        scene = row.scene()
        plan = scene.plan(row, width=WIDTH)
        judge, shown = Condition.judge, []

        def breaking(self, subject, batch, *tell):
            if len(shown) == 2:
                shown.append([])
                raise RuntimeError("out of memory")
            shown.append(batch.index.tolist())
            return judge(self, subject, batch, *tell)

        monkeypatch.setattr(Condition, "judge", breaking)
        with pytest.raises(ClasswiseError, match=r"out of memory; \d+ of 24 samples are kept"):
            run_audit(plan, record_in(tmp_path, plan))
        kept = shown[0] + shown[1]
        (resumed,) = run_audit(plan, record_in(tmp_path, plan))
        judged = [number for part in shown for number in part]
        assert sorted(judged) == list(range(COUNT))  # nobody twice
        assert kept == list(range(KEPT[row.by_batch]))
        same_verdicts(resumed, scene.found(row, width=WIDTH))
        assert len(list(tmp_path.glob("predictions/*.parquet"))) == 1

    def test_after_a_kill(self, tmp_path):
        environment = {**os.environ, "PYTHONPATH": _python_path()}
        done = subprocess.run(
            [sys.executable, "-c", _KILLED, str(tmp_path)],
            env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        ends = json.loads(done.stdout)
        assert len(ends) == len(KILLED)
        assert set(ends.values()) == {-9}
        for number in map(int, ends):
            row = CONDITIONS[number]
            scene = row.scene()
            plan, folder = scene.plan(row, width=WIDTH), tmp_path / str(number)
            record = record_in(folder, plan)
            kept = record.shelf(plan.conditions[0]).samples
            assert len(kept) == KEPT[row.by_batch]
            assert not list(folder.glob("predictions/.*.part"))
            (resumed,) = run_audit(plan, record)
            same_verdicts(resumed, scene.found(row, width=WIDTH))


# One process, in which each row has a child that is killed while it judges its third piece.
_KILLED = """
import json, os, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from conditions import CONDITIONS
from test_conditions_resumed import KILLED, WIDTH, record_in
from classwise.attacks.condition import Condition
from classwise.auditing.run import run_audit

judge, pieces = Condition.judge, []

def killed(self, subject, batch, *tell):
    if len(pieces) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    pieces.append(batch)
    return judge(self, subject, batch, *tell)

Condition.judge = killed
ends = {}
for number, row in enumerate(CONDITIONS):
    if row.name not in KILLED:
        continue
    child = os.fork()
    if child == 0:
        plan = row.scene().plan(row, width=WIDTH)
        run_audit(plan, record_in(Path(sys.argv[1]) / str(number), plan))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    ends[number] = os.waitstatus_to_exitcode(status)
print(json.dumps(ends))
"""


def _python_path() -> str:
    package = Path(classwise.__file__).parents[1]
    folders = [Path(conditions.__file__).parent, Path(__file__).parent, package]
    return os.pathsep.join(map(str, folders))
