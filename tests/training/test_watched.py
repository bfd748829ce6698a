"""Averages watched beside the live weights, and how accuracies swing between epochs."""

import numpy as np
import pytest
import torch
from asked import audit_target, perturb
from boundaries import LEARNS, files, interrupted_train, quick_train, watched_lines
from refusals import refused

from classwise.attacks.ball import LINF
from classwise.data.batches import Batches
from classwise.report.payload import _series
from classwise.report.runs import load_runs
from classwise.training.loop import Trainer, train


class TestWatching:
    TEXT = "at(steps=2)+ema(start=2)+swa(start=3)+fawa(threshold=1.5)"

    def test_averages_beside_the_live_weights(self, tiny, tmp_path):
        watch = "test:pgd-2, test:pgd-2@ema,test:clean@swa,test:pgd-2(eps=0.4)@ema,test:clean@fawa"
        run = quick_train(self.TEXT, tmp_path / "run", tiny(), watch=watch, watch_every=1)
        own, live = "test:pgd-2(eps=102/255)@ema", {"epoch", "test:pgd-2"}
        began = live | {"test:pgd-2@ema", own}
        assert [set(line) for line in watched_lines(run)] == [
            live,
            began,
            began | {"test:clean@swa"},
        ]
        run = quick_train(
            "at(steps=2)+ema(start=2, decay=0.95)",
            tmp_path / "learnt",
            tiny(per_class=20, test=20),
            **{**LEARNS, "watch": "test:pgd-2,test:pgd-2@ema,test:pgd-2(eps=0.4)@ema"},
        )
        last = watched_lines(run)[-1]
        assert last["test:pgd-2"] != last["test:pgd-2@ema"]  # else nothing would be shown
        (batch,) = Batches.of(tiny(test=20).test, 1000, torch.device("cpu")).in_order()
        for key, eps in (("test:pgd-2@ema", 0.05), (own, 0.4)):
            model = run.model("ema-last")
            moved = perturb("pgd-2", model, batch, eps=eps, ball=LINF, seed=run.config.seed)
            right = (model(moved).argmax(1) == batch.labels).double().mean().item()
            assert last[key]["overall"] == pytest.approx(right)

    def test_it_changes_nothing_and_goes_on_after_a_kill(self, tiny, tmp_path, monkeypatch):
        plain = quick_train(self.TEXT, tmp_path / "plain", tiny())
        facts = {"watch": "test:pgd-2@ema,test:clean@swa", "watch_every": 1}
        watched = quick_train(self.TEXT, tmp_path / "watched", tiny(), **facts)
        run_epoch = Trainer.run_epoch

        def cut(self, state, progress):
            if state.epoch == 2:
                raise KeyboardInterrupt
            return run_epoch(self, state, progress)

        with monkeypatch.context() as patch:
            patch.setattr(Trainer, "run_epoch", cut)
            with pytest.raises(KeyboardInterrupt):
                quick_train(self.TEXT, tmp_path / "cut", tiny(), **facts)
        resumed = quick_train(self.TEXT, tmp_path / "cut", tiny(), resume=True, **facts)
        assert {n: b for n, b in files(plain).items() if n != "run.json"} == {
            n: b for n, b in files(watched).items() if n != "run.json"
        }
        assert watched_lines(watched) == watched_lines(resumed)
        assert len(watched_lines(watched)[-1]) == 3

    def test_the_report_draws_it(self, tmp_path):
        options = {"data": "digits", "subset": 60, "epochs": 2, "model": "cnn(width=2)", "eps": 0.1}
        run = train(
            "at(steps=1)+ema(start=2)",
            out=tmp_path / "run",
            watch="test:clean@ema",
            quiet=True,
            **options,
        )
        audit_target(str(run.path), attacks="clean", limit=20, quiet=True)
        (read,) = load_runs([run.path])
        assert ["watched, test:clean@ema" in _series(one) for one in read.history] == [False, True]

    @pytest.mark.parametrize(
        ("recipe", "watch", "words"),
        [
            ("at+ema", "test:pgd-2@emma", ("emma", "did you mean 'ema'")),
            ("at+ema", "test:pgd-2@fawa", ("fawa", "ema")),
            ("at", "test:pgd-2@ema", ("'ema'", "none")),
            ("at+ema", "test:pgd-2@", ("SPLIT:ATTACK@AVERAGE",)),
            ("at+ema", "test@ema", ("SPLIT:ATTACK",)),
        ],
    )
    def test_unknown_averages_are_refused_before_training(
        self, recipe, watch, words, tiny, tmp_path
    ):
        with refused(*words):
            quick_train(recipe, tmp_path / "run", tiny(), watch=watch)
        assert not (tmp_path / "run").exists()


def swings(history, weights, attack):
    """Fluctuation of every record by a straight loop over the rates themselves."""
    found = []
    for before, now in zip([None, *history], history, strict=False):
        old = before and before["valid"].get(weights, {}).get(attack)
        new = now["valid"].get(weights, {}).get(attack)
        if not old or not new:
            found.append(None)
            continue
        each = []
        for k in range(len(new["by_class"])):
            a, b = old["by_class"][k], new["by_class"][k]
            each.append(None if a is None or b is None else abs(b - a))
        lows = [min(x for x in one["by_class"] if x is not None) for one in (old, new)]
        found.append({"worst": abs(lows[1] - lows[0]), "by_class": each})
    return found


class TestFluctuation:
    TEXT = "at(steps=2)+ema(start=2)"

    def test_every_record_has_that_of_every_weights(self, tiny, tmp_path):
        data = tiny(per_class=40, classes=4, missing=(3,))
        run = quick_train(self.TEXT, tmp_path / "run", data, **{**LEARNS, "epochs": 5})
        for name in ("live", "ema"):
            for attack in ("clean", "pgd-2"):
                expected = swings(run.history, name, attack)
                got = [one["fluctuation"].get(name, {}).get(attack) for one in run.history]
                assert got == expected
                assert sum(one is not None for one in got) == (4 if name == "live" else 3)
        assert any(one["fluctuation"]["live"]["clean"]["worst"] for one in run.history[1:])
        assert run.history[1]["fluctuation"]["live"]["clean"]["by_class"][3] is None

    def test_a_resumed_run_is_the_straight_one(self, tiny, tmp_path, monkeypatch):
        straight = quick_train(self.TEXT, tmp_path / "straight", tiny(), epochs=4)
        resumed = interrupted_train(self.TEXT, tmp_path / "cut", tiny(), monkeypatch, 3, epochs=4)
        assert files(straight) == files(resumed)

    def test_the_mean_over_the_last_epochs(self, tiny, tmp_path):
        data, watch = tiny(per_class=40, classes=3, test=9), "test:pgd-2,test:pgd-2@ema"
        options = {**LEARNS, "epochs": 5, "watch": watch, "watch_every": 1}
        run = quick_train(self.TEXT, tmp_path / "run", data, **options)
        for of, name in (("valid:pgd-2", "live"), ("valid:pgd-2@ema", "ema")):
            last = swings(run.history, name, "pgd-2")[-2:]
            found = run.fluctuation(of, last=2)
            assert found["worst"] == pytest.approx(np.mean([one["worst"] for one in last]))
            assert found["by_class"] == pytest.approx(
                np.mean([one["by_class"] for one in last], axis=0)
            )
        lines = watched_lines(run)
        test = [line["test:pgd-2@ema"]["by_class"] for line in lines if "test:pgd-2@ema" in line]
        change = np.abs(np.diff(test, axis=0))
        assert run.fluctuation("test:pgd-2@ema", last=3)["by_class"] == pytest.approx(
            change.mean(0)
        )
        with refused("last 4 epochs", "smaller"):
            run.fluctuation("test:pgd-2@ema", last=4)
        with refused("last 0", "1 at the least"):
            run.fluctuation("valid:clean", last=0)
        with refused("valid:pgd-20", "did you mean 'valid:pgd-2'"):
            run.fluctuation("valid:pgd-20", last=2)

    def test_epochs_that_were_passed_over_are_no_neighbours(self, tiny, tmp_path):
        options = {"watch": "test:clean", "watch_every": 2, "epochs": 4}
        run = quick_train("at(steps=1)", tmp_path / "run", tiny(), **options)
        with refused("last 1 epochs", "2 between 2 to 4"):
            run.fluctuation("test:clean", last=1)
