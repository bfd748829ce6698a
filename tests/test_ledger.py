import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import duckdb
import numpy as np
import pytest
import torch
from asked import attack_key, audit_target, evaluate, write_predictions
from ledgers import ABOUT, Counting, Told, audit_model, complete, missing, stamp, verdicts
from refusals import refused
from torch import nn

import classwise
from classwise.attacks.condition import Condition
from classwise.attacks.fixed_steps import FixedSteps
from classwise.auditing import run as run_module
from classwise.auditing.run import LOST, pieces
from classwise.data.batches import Batches
from classwise.data.view import data_hash
from classwise.errors import ClasswiseError
from classwise.judging.audits import read_audits, read_ledger
from classwise.models.subject import model_hash
from classwise.record import ledger as ledger_module
from classwise.record.card import write_card
from classwise.record.ledger import Ledger
from classwise.record.rows import in_order_of, select
from classwise.record.shelf import Shelf


def data(count=20, batch_size=6, first=0):
    images = torch.rand(count, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    index = torch.arange(first, first + count)
    return Batches(images, index % 3, index, batch_size)


class TestCompletion:
    def test_nothing_is_judged_twice(self, tmp_path):
        ledger, first, second = Ledger(tmp_path), Counting(), Counting()
        found = complete(ledger, stamp(), data(), first)
        again = complete(ledger, stamp(), data(batch_size=3), second)
        assert np.concatenate(first.shown).tolist() == list(range(20))
        assert second.shown == []
        for column in ("sample", "label", "predicted", "logit_gap", "radius", "broken_by"):
            assert np.array_equal(getattr(found, column), getattr(again, column))

    def test_only_what_is_missing_is_judged(self, tmp_path):
        ledger, judge = Ledger(tmp_path), Counting()
        ledger.append(verdicts([3, 4, 11]), stamp())
        assert missing(ledger, stamp(), np.arange(5)).tolist() == [0, 1, 2]
        found = complete(ledger, stamp(), data(), judge)
        assert np.concatenate(judge.shown).tolist() == [n for n in range(20) if n not in (3, 4, 11)]
        assert found.sample.tolist() == list(range(20))
        assert found.predicted[[3, 4, 11]].tolist() == [0, 1, 2]

    @pytest.mark.parametrize("other", [
        {"model": "m2"}, {"data": "d2"}, {"eps": 0.2}, {"seed": 1}, {"attack": "pgd-3"},
    ])  # fmt: skip
    def test_another_model_data_or_attack_is_another_question(self, tmp_path, other):
        ledger = Ledger(tmp_path)
        complete(ledger, stamp(), data(), Counting())
        assert len(missing(ledger, stamp(**other), np.arange(20))) == 20

    def test_a_part_comes_back_in_the_order_it_was_asked_for(self, tmp_path):
        ledger = Ledger(tmp_path)
        whole = complete(ledger, stamp(), data(), Counting())
        order = np.array([7, 2, 19])
        part = in_order_of(order, whole)
        assert part.sample.tolist() == [7, 2, 19]
        assert np.array_equal(part.predicted, whole.predicted[order])
        assert select(whole, np.array([1])).sample.tolist() == [1]

    def test_the_same_weights_under_another_name_get_rows_but_no_attack(self, tmp_path):
        ledger, judge = Ledger(tmp_path, ABOUT), Counting()
        complete(ledger, stamp("last"), data(), Counting())
        complete(ledger, stamp("best"), data(count=9), judge)
        assert judge.shown == []
        best, last = read_audits(tmp_path, ABOUT)
        assert (best.weights, last.weights) == ("best", "last")
        assert best.report["pgd-2"].counts.sizes.sum() == 9
        assert last.report["pgd-2"].counts.sizes.sum() == 20

    def test_shards_are_compacted_without_losing_a_row(self, tmp_path):
        ledger = Ledger(tmp_path)
        for n in range(5):
            ledger.append(verdicts([n, n + 5]), stamp())
        ledger.append(verdicts([1]), stamp("best"))
        assert len(list(tmp_path.iterdir())) == 6
        before = ledger.read(stamp())
        ledger.compact(stamp())
        assert len(list(tmp_path.iterdir())) == 2
        assert np.array_equal(ledger.read(stamp()).sample, before.sample)
        ledger.compact(stamp())
        assert len(list(tmp_path.iterdir())) == 2

    def test_progress_counts_what_was_there_already(self, tmp_path):
        ledger, told = Ledger(tmp_path), Told()
        ledger.append(verdicts([0, 1]), stamp())
        complete(ledger, stamp(), data(), Counting(), listener=told)
        assert told.steps == [2, 6, 6, 6]


class TestCrash:
    def test_a_model_that_raises_keeps_the_batches_before(self, tmp_path):
        ledger, judge = Ledger(tmp_path), Counting(fail_at=2)
        words = ("samples 12 to 17", "RuntimeError: the model broke", "12 of 20")
        with refused(*words, str(tmp_path)):
            complete(ledger, stamp(), data(), judge)
        assert missing(ledger, stamp(), np.arange(20)).tolist() == list(range(12, 20))
        judge = Counting()
        complete(ledger, stamp(), data(), judge)
        assert judge.shown == [list(range(12, 18)), [18, 19]]

    def test_a_kill_loses_at_most_one_batch_and_the_rest_is_the_same(self, tmp_path):
        script = textwrap.dedent(
            """
            import sys, time, torch
            from pathlib import Path
            from ledgers import Counting, complete, stamp
            from test_ledger import data
            from classwise.record.ledger import Ledger
            class Slow(Counting):
                def judge(self, *words):
                    if len(self.shown) == 3:
                        print("ready", flush=True)
                        time.sleep(60)
                    return super().judge(*words)
            complete(Ledger(Path(sys.argv[1])), stamp(), data(), Slow())
            """
        )
        folder = tmp_path / "killed"
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
        child = subprocess.Popen(
            [sys.executable, "-c", script, str(folder)],
            env=environment,
            stdout=subprocess.PIPE,
        )
        assert child.stdout.readline().strip() == b"ready"
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
        ledger, judge = Ledger(folder), Counting()
        assert missing(ledger, stamp(), np.arange(20)).tolist() == [18, 19]
        resumed = complete(ledger, stamp(), data(), judge)
        straight = complete(Ledger(tmp_path / "straight"), stamp(), data(), Counting())
        assert judge.shown == [[18, 19]]
        assert np.array_equal(resumed.predicted, straight.predicted)
        # Compacted, the two ledgers are the same file, name included.
        names = [sorted(p.name for p in f.iterdir()) for f in (folder, tmp_path / "straight")]
        assert names[0] == names[1]

    def test_a_real_audit_goes_on_after_a_kill_as_if_nothing_had_happened(self, tmp_path):
        (tmp_path / "plain_net.py").write_text(
            "import torch\nfrom torch import nn\n"
            "def make(num_classes):\n"
            "    torch.manual_seed(0)\n"
            "    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(),\n"
            "                         nn.Linear(288, num_classes)).eval()\n"
        )
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        attacks = "suite(apgd-ce(steps=10),apgd-t(steps=10,targets=3),square(queries=100))"

        def audit(folder):
            words = "audit plain_net:make --data digits --eps 0.002 --batch-size 15 --quiet"
            command = [sys.executable, "-m", "classwise", *words.split(), "--out", str(folder)]
            return subprocess.Popen(
                [*command, "--attacks", attacks], env=environment, stdout=subprocess.DEVNULL
            )

        def rows(folder):
            columns = "sample, label, predicted, iterations, broken_by"
            return duckdb.sql(
                f"SELECT {columns} FROM '{folder}/predictions/*.parquet' ORDER BY sample"
            ).fetchall()

        def gaps(folder):
            table = f"'{folder}/predictions/*.parquet'"
            return duckdb.sql(f"SELECT logit_gap FROM {table} ORDER BY sample").fetchnumpy()[
                "logit_gap"
            ]

        straight, killed = tmp_path / "straight", tmp_path / "killed"
        assert audit(straight).wait() == 0
        child = audit(killed)
        while len(list(killed.glob("predictions/*.parquet"))) < 3:
            assert child.poll() is None, "it was over before it could be killed"
            time.sleep(0.002)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        before = rows(killed)
        assert 16 + 30 + 30 <= len(before) < len(rows(straight))  # the first piece is a small one
        assert audit(killed).wait() == 0
        assert rows(killed) == rows(straight)
        # in float32 the last digits of a gap depend on the batch that an image stands in
        assert np.allclose(gaps(killed), gaps(straight), atol=1e-5)
        assert {broken for *_, broken in rows(straight)} > {None, "clean"}

    def test_a_full_disk_is_one_line_and_keeps_what_was_written(self, tmp_path):
        script = textwrap.dedent(
            """
            import resource, sys
            from pathlib import Path
            import numpy as np
            from ledgers import stamp, verdicts
            from classwise.record.ledger import Ledger
            from classwise.errors import ClasswiseError
            ledger = Ledger(Path(sys.argv[1]))
            ledger.append(verdicts([0, 1]), stamp())
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
            try:
                ledger.append(verdicts(np.arange(2, 5000)), stamp())
            except ClasswiseError as reason:
                print(reason)
            """
        )
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.count("\n") == 1
        assert "cannot write" in done.stdout
        assert "stays" in done.stdout
        assert Ledger(tmp_path).read(stamp()).sample.tolist() == [0, 1]
        assert [path.suffix for path in tmp_path.iterdir()] == [".parquet"]


class TestMerging:
    def test_files_copied_together_are_one_ledger(self, tmp_path):
        whole = complete(Ledger(tmp_path / "whole"), stamp(), data(), Counting())
        merged = tmp_path / "merged"
        merged.mkdir()
        for name, first, count in (("a", 0, 12), ("b", 8, 12)):
            part = data(count=count, first=first)
            complete(Ledger(tmp_path / name), stamp(), part, Counting())
            for path in (tmp_path / name).iterdir():
                assert not (merged / path.name).exists()
                shutil.copy(path, merged)
        ledger, judge = Ledger(merged), Counting()
        assert np.array_equal(ledger.read(stamp()).predicted, whole.predicted)
        complete(ledger, stamp(), data(), judge)
        assert judge.shown == []
        assert len(list(merged.iterdir())) == 1

    @pytest.mark.parametrize("turned", [False, True])
    def test_where_machines_disagree_the_sample_fell(self, tmp_path, turned):
        ledger = Ledger(tmp_path, ABOUT)
        both = [verdicts([0, 1], predicted=[0, 2]), verdicts([0, 1], predicted=[0, 1])]
        for one in reversed(both) if turned else both:
            ledger.append(one, stamp())
        assert ledger.read(stamp()).predicted.tolist() == [0, 2]
        (audited,) = read_ledger(tmp_path)
        assert audited.report["pgd-2"].by_class == {"a": 1.0, "b": 0.0, "c": None}


def test_a_file_that_another_process_compacts_away_is_no_failure(tmp_path, monkeypatch):
    ledger = Ledger(tmp_path)
    for n in range(3):
        ledger.append(verdicts([n]), stamp())
    seen = Path.glob
    glances = []

    def glance(folder, pattern):
        found = list(seen(folder, pattern))
        glances.append(len(found))
        if len(glances) == 1:  # between looking and reading, the files become one
            monkeypatch.setattr(Path, "glob", seen)
            ledger.compact(stamp())
            monkeypatch.setattr(Path, "glob", glance)
        return iter(found)

    monkeypatch.setattr(Path, "glob", glance)
    assert ledger.read(stamp()).sample.tolist() == [0, 1, 2]
    assert glances == [3, 1]


class TestReading:
    def test_a_bare_folder_of_shards_gives_its_table_without_model_or_run(self, tmp_path):
        ledger = Ledger(tmp_path, ABOUT)
        complete(ledger, stamp(), data(), Counting())
        found = ledger.read(stamp())
        (audited,) = read_ledger(tmp_path)
        assert audited.recipe == "made up"
        for k, name in enumerate("abc"):
            expected = found.correct[found.label == k].mean()
            assert audited.report["pgd-2"].by_class[name] == pytest.approx(expected)

    def test_attacks_weights_and_splits_can_be_chosen(self, tmp_path):
        ledger = Ledger(tmp_path, ABOUT)
        for eps in (0.1, 0.2):
            found = replace(verdicts(range(9)), radius=np.full(9, eps))
            ledger.append(found, stamp(eps=eps))
        ledger.append(verdicts(range(6), condition="clean"), stamp(attack="clean"))
        ledger.append(verdicts(range(3)), stamp("best"))
        assert len(read_ledger(tmp_path)) == 2
        (audited,) = read_ledger(tmp_path, attacks=["pgd-2"], weights="last")
        assert list(audited.report) == ["pgd-2 eps=0.1 seed=0", "pgd-2 eps=0.2 seed=0"]
        for words in ({"weights": "bets"}, {"split": "tset"}, {"attacks": ["pgd-3"]}):
            with refused("unknown", str(tmp_path)):
                read_ledger(tmp_path, **words)

    def test_norms_and_verdicts_of_one_attack_are_all_shown(self, tmp_path):
        ledger = Ledger(tmp_path, ABOUT)
        for norm, verdict in (("Linf", "last"), ("Linf", "any"), ("L2", "last")):
            key = attack_key("pgd-2", 0.1, norm, 0, verdict)
            found = verdicts(range(3), norm=norm, verdict=verdict)
            ledger.append(found, replace(stamp(), attack_key=key))
        (audited,) = read_ledger(tmp_path)
        assert len(audited.report) == 3
        assert audited.report.about["norm"] == "L2, Linf"

    def test_changed_weights_are_not_mixed_with_the_old_ones(self, tmp_path):
        ledger = Ledger(tmp_path, ABOUT)
        ledger.append(verdicts(range(6)), stamp(model="aaaaaaaa1"))
        ledger.append(verdicts(range(6), predicted=[0] * 6), stamp(model="bbbbbbbb2"))
        audits = read_ledger(tmp_path)
        assert [one.weights for one in audits] == ["last@aaaaaaaa", "last@bbbbbbbb"]
        assert [one.report["pgd-2"].overall for one in audits] == [1.0, pytest.approx(1 / 3)]

    def test_radii_may_differ_from_sample_to_sample(self, tmp_path):
        found = replace(verdicts(range(6)), radius=np.linspace(0.1, 0.2, 6))
        Ledger(tmp_path, ABOUT).append(found, stamp(eps=tuple(found.radius)))
        (audited,) = read_ledger(tmp_path)
        assert list(audited.report) == ["pgd-2"]
        assert audited.report["pgd-2"].counts.sizes.sum() == 6

    def test_a_ledger_of_another_version_is_refused_by_name(self, tmp_path):
        path = Ledger(tmp_path, ABOUT).append(verdicts(range(3)), stamp())
        other = tmp_path / "other.parquet"
        duckdb.execute(
            f"COPY (FROM read_parquet('{path}')) TO '{other}' "
            "(FORMAT parquet, KV_METADATA {classwise_ledger: '7'})"
        )
        with refused("other.parquet", "version 7", "reads version 1"):
            read_ledger(tmp_path)
        with refused("other.parquet", "version 7"):
            missing(Ledger(tmp_path), stamp(), np.arange(3))
        duckdb.execute(f"COPY (SELECT 1 AS x) TO '{other}' (FORMAT parquet)")
        with refused("other.parquet", "no ledger version"):
            read_ledger(tmp_path)

    def test_folders_that_hold_nothing(self, tmp_path):
        with refused("not a folder"):
            read_ledger(tmp_path / "gone")
        with refused("holds no audit"):
            read_ledger(tmp_path)
        write_card(tmp_path, "at", {"class_names": ["a"]})
        with refused("no audit yet"):
            read_ledger(tmp_path)
        write_predictions(tmp_path, verdicts(range(3)), run="r", weights="w", split="s")
        with refused("class number 2", "1 classes"):
            read_ledger(tmp_path)


def test_two_models_with_the_same_verdicts_are_both_kept(tmp_path):
    ledger = Ledger(tmp_path, ABOUT)
    for owner in ({"model": "m1"}, {"model": "m2"}, {"data": "d2"}, {"seed": 1}):
        ledger.append(verdicts(range(6)), stamp(**owner))
        ledger.append(verdicts(range(6)), stamp(**owner))  # the same again is the same file
    assert len(list(tmp_path.glob("*.parquet"))) == 4
    for owner in ({"model": "m1"}, {"model": "m2"}, {"data": "d2"}, {"seed": 1}):
        assert len(missing(ledger, stamp(**owner), np.arange(6))) == 0


class TestFingerprints:
    def test_a_model_is_known_by_tensors_structure_and_settings(self):
        torch.manual_seed(0)
        first = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU())
        same = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU())
        same.load_state_dict(first.state_dict())
        assert model_hash(first) == model_hash(same.train())
        hashes = {model_hash(first)}
        with torch.no_grad():
            same[0].bias[0] += 1e-6
        hashes.add(model_hash(same))
        same.load_state_dict(first.state_dict())
        same[1].running_mean += 1
        hashes.add(model_hash(same))
        same.load_state_dict(first.state_dict())
        same[0].padding = (1, 1)
        hashes.add(model_hash(same))
        other = nn.Sequential(*first[:2], nn.Tanh())
        hashes.add(model_hash(other))
        hashes.add(model_hash(first, "with a note"))
        hashes.add(model_hash(first.bfloat16()))
        assert len(hashes) == 7

    def test_a_function_needs_a_name(self):
        with refused("function", "name"):
            model_hash(lambda x: x)
        assert model_hash(lambda x: x, "v1") != model_hash(lambda x: x, "v2")

    def test_data_are_known_by_pixels_and_labels(self):
        images, labels = torch.rand(3, 1, 2, 2), torch.tensor([0, 1, 1])
        other = images.clone()
        other[2, 0, 1, 1] += 1e-3
        found = {data_hash(images, labels), data_hash(other, labels), data_hash(images, 1 - labels)}
        assert len(found) == 3

    def test_clean_images_are_one_condition_whatever_the_radius(self):
        facts = [(0.1, "Linf", 0, "last"), (0.2, "L2", 3, "any")]
        assert len({attack_key("clean", *one) for one in facts}) == 1
        assert len({attack_key("fgsm", *one) for one in facts}) == 2


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 3)

    def forward(self, x):
        return self.layer(x.flatten(1))


class TestGivenModels:
    """`classwise.audit` with a folder."""

    facts: ClassVar = {"attacks": "clean,pgd-3", "eps": 0.1, "class_names": ("a", "b", "c")}

    @pytest.fixture
    def given(self):
        torch.manual_seed(0)
        batches = data(40)
        return Tiny(), batches.images, batches.labels

    def test_nothing_is_attacked_twice(self, given, tmp_path):
        plain = classwise.audit(*given, **self.facts)
        kept = classwise.audit(*given, **self.facts, out=tmp_path / "kept", name="tiny")
        for condition in ("clean", "pgd-3"):
            assert np.array_equal(kept.confusion[condition], plain.confusion[condition])
        files = sorted((tmp_path / "kept" / "predictions").glob("*.parquet"))
        times = [path.stat().st_mtime_ns for path in files]
        again = classwise.audit(*given, **self.facts, out=tmp_path / "kept", name="tiny")
        assert np.array_equal(again.confusion["pgd-3"], plain.confusion["pgd-3"])
        assert [path.stat().st_mtime_ns for path in files] == times
        (read,) = read_ledger(tmp_path / "kept")
        assert (read.recipe, read.split) == ("tiny", "test")
        assert list(read.report.by_class["clean"]) == ["a", "b", "c"]

    def test_an_interrupted_audit_goes_on(self, given, tmp_path, monkeypatch):
        judged, lucky, judge = [], [3], FixedSteps.judge

        def counted(self, subject, batch, *rest):
            if len(judged) == lucky[0]:
                raise RuntimeError("out of luck")
            judged.append(len(batch))
            return judge(self, subject, batch, *rest)

        monkeypatch.setattr(FixedSteps, "judge", counted)
        facts = {**self.facts, "attacks": "pgd-3", "batch_size": 4, "out": tmp_path / "kept"}
        with refused("samples 24 to 31", "out of luck", "24 of 40 samples are kept"):
            classwise.audit(*given, **facts)
        lucky[0] = 99
        report = classwise.audit(*given, **facts)
        assert judged == [8] * 5
        plain = classwise.audit(*given, **{**self.facts, "attacks": "pgd-3"})
        assert np.array_equal(report.confusion["pgd-3"], plain.confusion["pgd-3"])

    def test_without_a_folder_the_error_says_where_it_was(self, given, monkeypatch):
        def broken(*_, **__):
            raise RuntimeError("out of luck")

        monkeypatch.setattr(Condition, "judge", broken)
        with pytest.raises(RuntimeError, match="out of luck") as caught:
            classwise.audit(*given, **self.facts)
        assert caught.value.__notes__ == ["while clean was run on samples 0 to 39"]

    def test_a_function_needs_a_name_and_a_new_one_for_new_weights(self, given, tmp_path):
        model, images, labels = given
        facts = {**self.facts, "attacks": "clean", "out": tmp_path / "kept"}
        with refused("name="):
            classwise.audit(lambda x: model(x), images, labels, **facts)
        classwise.audit(lambda x: model(x), images, labels, **facts, name="v1")
        classwise.audit(lambda x: -model(x), images, labels, **facts, name="v2")
        first, second = read_ledger(tmp_path / "kept")
        assert {first.recipe, second.recipe} == {"v1", "v2"}
        assert first.report.overall["clean"] != second.report.overall["clean"]

    def test_a_radius_for_each_image_and_what_is_said_of_the_model(self, given, tmp_path):
        eps = torch.linspace(0, 0.2, 40)
        facts = {**self.facts, "attacks": "pgd-3", "eps": eps}
        plain = classwise.audit(*given, **facts)
        kept = classwise.audit(*given, **facts, out=tmp_path / "kept")
        assert np.array_equal(kept.confusion["pgd-3"], plain.confusion["pgd-3"])

    def test_superclasses_may_come_later(self, given, tmp_path):
        facts = {**self.facts, "attacks": "clean", "out": tmp_path / "kept"}
        classwise.audit(*given, **facts)
        groups = {"superclass_of": (0, 0, 1), "superclass_names": ("both", "alone")}
        classwise.audit(*given, **facts, **groups)
        (read,) = read_ledger(tmp_path / "kept")
        assert read.report["clean"].superclass_names == ("both", "alone")

    def test_a_training_run_is_not_overwritten(self, given, tmp_path):
        card = tmp_path / "run.json"
        card.write_text('{"identity": "abc", "data": {"class_names": ["a"]}}')
        with refused("training run", "another folder"):
            classwise.audit(*given, **self.facts, out=tmp_path)
        assert "abc" in card.read_text()


def test_an_audit_through_the_ledger_equals_the_plain_one_for_any_batch_size(tmp_path):
    torch.manual_seed(0)
    model = Tiny()
    facts = {"num_classes": 3, "attacks": "clean,pgd-3", "eps": 0.1}
    plain = evaluate(model, data(40), **facts)
    for size in (7, 40):
        ledger = Ledger(tmp_path / str(size), ABOUT)
        found = audit_model(model, data(40, size), ledger=ledger, **facts)
        for one, other in zip(found, plain, strict=True):
            assert one.condition == other.condition
            assert np.array_equal(one.sample, other.sample)
            assert np.array_equal(one.predicted, other.predicted)
            assert one.broken_by.tolist() == other.broken_by.tolist()


def test_a_small_audit_of_a_target_begins_the_large_one(tmp_path, monkeypatch):
    (tmp_path / "own_net.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def make(num_classes):\n"
        "    torch.manual_seed(0)\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    shown, judge = [], Condition.judge

    def counting(self, subject, batch, tell):
        shown.append(len(batch))
        return judge(self, subject, batch, tell)

    monkeypatch.setattr(Condition, "judge", counting)
    facts = {"data": "digits", "attacks": "clean,pgd-2", "eps": 0.1, "quiet": True}
    folder = tmp_path / "kept"
    (small,) = audit_target("own_net:make", folder=folder, limit=50, **facts)
    assert sum(shown) == 100
    (large,) = audit_target("own_net:make", folder=folder, **facts)
    count = int(large.report["pgd-2"].counts.sizes.sum())
    assert sum(shown) == 2 * count
    (again,) = audit_target("own_net:make", folder=folder, limit=50, **facts)
    assert sum(shown) == 2 * count
    assert again.report.by_class == small.report.by_class
    (fresh,) = audit_target("own_net:make", folder=tmp_path / "other", **facts)
    assert fresh.report.by_class == large.report.by_class
    (read,) = read_ledger(folder)
    assert read.report.by_class == large.report.by_class


def test_a_batch_that_says_too_little_is_an_error_with_its_cause(tmp_path):
    with pytest.raises(ClasswiseError) as caught:
        complete(Ledger(tmp_path), stamp(), data(), Counting(fail_at=0))
    assert isinstance(caught.value.__cause__, RuntimeError)


class Shift:
    """Someone else's attack, with a setting."""

    def __init__(self, by):
        self.by = by

    def __call__(self, images, _):
        return (images + self.by).clamp(0, 1)


def test_someone_elses_attack_is_known_by_its_settings(tmp_path):
    torch.manual_seed(0)
    model, ledger = Tiny(), Ledger(tmp_path, ABOUT)
    facts = {"num_classes": 3, "eps": 0.1, "ledger": ledger}
    for by in (0.1, -0.1):
        (found,) = audit_model(model, data(), attacks=[Shift(by)], **facts)
        images = (data().images + by).clamp(0, 1)
        assert np.array_equal(found.predicted, model(images).argmax(1).numpy())
    assert len(list(tmp_path.iterdir())) == 2
    with refused("settings"):
        audit_model(model, data(), attacks=[lambda images, _: images], **facts)


def test_a_radius_per_image_follows_its_image_into_every_batch(tmp_path):
    torch.manual_seed(0)
    model, eps = Tiny(), torch.linspace(0, 0.3, 20)
    facts = {"num_classes": 3, "attacks": "fgsm", "eps": eps}
    (plain,) = evaluate(model, data(), **facts)
    ledger = Ledger(tmp_path, ABOUT)
    ledger.append(verdicts([3, 11]), stamp())  # another key, same folder
    (found,) = audit_model(model, data(batch_size=7), ledger=ledger, **facts)
    assert found.radius == pytest.approx(eps.numpy())
    assert np.array_equal(found.predicted, plain.predicted)


class TestShelf:
    """What a ledger knows is read once and looked up by sample number."""

    def test_files_are_read_once_however_many_pieces_are_asked_for(self, tmp_path, monkeypatch):
        ledger = Ledger(tmp_path)
        complete(ledger, stamp(), data(), Counting(), tidy=False)
        opened = []
        real = ledger_module.open_table
        monkeypatch.setattr(
            ledger_module, "open_table", lambda *where: opened.append(1) or real(*where)
        )
        fresh, judge = Ledger(tmp_path), Counting()
        for number in range(20):
            part = data(count=1, first=number)
            assert complete(fresh, stamp(), part, judge, tidy=False).sample.tolist() == [number]
        assert len(opened) == 2  # all that the model met, and what carries its name
        assert judge.shown == []

    def test_rows_come_in_the_order_asked_for_from_any_part(self):
        whole = verdicts(range(10))
        shelf = Shelf(select(whole, np.array([7, 2])), None)
        shelf.add(select(whole, np.array([9, 0, 2])))
        wanted = np.array([0, 7, 9, 2])
        assert shelf.rows(wanted).sample.tolist() == wanted.tolist()
        assert np.array_equal(shelf.rows(wanted).predicted, whole.predicted[wanted])
        assert shelf.has(np.array([1, 2, 50])).tolist() == [False, True, False]
        assert shelf.samples.tolist() == [0, 2, 7, 9]

    def test_a_slow_model_is_saved_often_and_a_quick_one_in_whole_batches(self, monkeypatch):
        now = [0.0]
        monkeypatch.setattr(run_module, "monotonic", lambda: now[0])

        def sizes(seconds, most=256):
            found = []
            for part in pieces(np.arange(1000), most):
                now[0] += seconds * len(part)
                found.append(len(part))
            assert sum(found) == 1000
            return found

        assert sizes(1e-3)[:2] == [16, 256]
        slow = sizes(3.5)  # AutoAttack on a large network: 15 minutes for a batch of 256
        assert max(one * 3.5 for one in slow) <= LOST
        assert set(sizes(200.0)[1:]) == {1}

    def test_steady_pieces_do_not_follow_the_clock(self):
        assert [len(part) for part in pieces(np.arange(10), 4, steady=True)] == [4, 4, 2]
