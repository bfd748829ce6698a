"""How often a run is watched, worked out from network passes, which torch counts as FLOPs here."""

import json
from pathlib import Path

import pytest
import torch
from boundaries import quick_train, watched_lines
from places import ROOT
from refusals import refused

from classwise.attacks.inner import Moment
from classwise.attacks.names import parse_condition
from classwise.attacks.threat import Threat
from classwise.classes.settings import Seen
from classwise.recipe_text import parse_recipe
from classwise.sealed import sealed_text
from classwise.training.cadence import Cadence
from classwise.training.config import TrainConfig
from classwise.training.estimate import estimate
from classwise.training.loop import Trainer, train
from classwise.training.passes import passes_of_look, passes_of_training
from classwise.training.progress import TrainProgress
from classwise.training.run import Run

SMALL = {"model": "resnet9(width=4)", "batch_size": 50, "valid": "0", "eps": 0.1, "epochs": 1}


def trainer_of(recipe, source, **options):
    config = TrainConfig(**{**SMALL, **options})
    return Trainer(Run(Path("nowhere")), parse_recipe(recipe), config, source, torch.device("cpu"))


@pytest.fixture
def forwards(monkeypatch):
    """Work in forward passes of so many images, by the FLOPs that torch counts."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from counting import Work

    def count(work, trainer, images):
        shape = trainer.train_data.images.shape[1:]
        with Work() as once, torch.no_grad():
            trainer.model(torch.rand(images, *shape))
        with Work() as whole:
            work()
        return whole.flops / once.flops

    return count


class TestPasses:
    @pytest.mark.parametrize(
        ("recipe", "units"),
        [
            ("clean", 3),
            ("at(steps=3)", 9),
            ("trades(steps=3)", 13),  # and the clean prediction; two views in the loss
            ("mart(steps=2)", 10),
            ("fast", 5),
            ("free(replays=4)", 12),
        ],
    )
    def test_training_is_counted_as_torch_counts_it(self, recipe, units, tiny, forwards):
        trainer = trainer_of(recipe, tiny(per_class=20), valid="0.1")
        assert passes_of_training(trainer.slots, 1) == units
        quiet = TrainProgress("", 1, 0, 1, quiet=True)
        begin, images = trainer.beginning(), len(trainer.train_labels)
        found = forwards(lambda: trainer.run_epoch(begin, quiet), trainer, images)
        # the first layer needs no slope of a clean image; a quick twin is held against the model
        assert units - 0.7 < found < units + 0.9

    def test_a_schedule_counts_every_epoch_by_itself(self):
        slots = parse_recipe("at(steps={0: 2, 0.5: 10})").slots
        assert passes_of_training(slots, 4) == 2 * (3 + 4) + 2 * (3 + 20)

    @pytest.mark.parametrize(
        ("name", "units", "exact"),
        [
            ("clean", 1, True),
            ("fgsm", 3, True),
            ("pgd-4", 9, True),
            ("pgd-4(target=random)", 10, True),
            ("pgd-4(restarts=2)", 18, False),  # who has fallen is left alone
            ("pgd-4(verdict=any)", 12, False),
            ("suite(apgd-ce(steps=3),square(queries=5))", 1 + 9 + 6, False),
            ("fab-t(steps=2,targets=2)", 1 + 2 * 3 * 3 + 1, False),
            ("deepfool(steps=2,targets=2)", 1 + 3 * 5 + 1, False),
        ],
    )
    def test_a_look_is_counted_as_torch_counts_it(self, name, units, exact, tiny, forwards):
        trainer = trainer_of("at", tiny(per_class=20, test=40), watch=f"test:{name}", watch_every=1)
        condition = parse_condition(name, Threat.of(0.1))
        assert passes_of_look(condition, trainer.num_classes) == units
        (seen,) = (one.seen for one in trainer.watched)
        images = len(trainer.checker.splits["test"].labels)

        def look():
            trainer.checker.look(trainer.model, frozenset({seen}), Moment(0, 1, 1))

        found = forwards(look, trainer, images)
        assert found < units + 0.9
        assert not exact or found > units - 0.7

    def test_smoothing_asks_as_often_as_it_says(self):
        names = {"smoothing(n=500,n0=100)": 600, "smoothed-pgd-3(m=4,n=200)": 2 * 3 * 4 + 200}
        for name, units in names.items():
            assert passes_of_look(parse_condition(name, Threat.of(0.5, "L2")), 10) == units


FACTS = {"watch": "test:pgd-20", "epochs": 10}


class TestCadence:
    @pytest.mark.parametrize("share", [1, 0.7, 0.4, 0.3, 0.2, 0.1])
    def test_it_is_the_smallest_that_keeps_to_the_share(self, share, tiny):
        data = tiny(per_class=50, classes=2, test=20)
        trainer = trainer_of("at", data, **FACTS, watch_share=share)
        test, images = len(data.test.labels), len(trainer.train_labels)

        def taken(every):
            looks = len({*range(every, 11, every), 10})
            return looks * test * 41 / (images * 230)

        fits = [every for every in range(1, 11) if taken(every) <= share]
        assert trainer.cadence.every == min(fits, default=10)
        assert trainer.cadence.share == taken(trainer.cadence.every)
        assert trainer.about["watching"] == {
            "every": trainer.cadence.every,
            "share": trainer.cadence.share,
        }

    def test_an_average_counts_from_where_it_begins(self, tiny):
        facts = {"epochs": 10, "watch_share": 0.2}
        data = tiny(per_class=50, classes=2, test=20)
        late = trainer_of("at+ema(start=8)", data, watch="test:pgd-20@ema", **facts).cadence
        live = trainer_of("at+ema(start=8)", data, watch="test:pgd-20", **facts).cadence
        assert (late.every, live.every) == (2, 5)  # after epochs 8 and 10, and after 5 and 10

    def test_it_is_said_kept_and_resumed(self, tiny, tmp_path, capfd):
        config = TrainConfig(
            model="cnn(width=2)",
            eps=0.1,
            epochs=6,
            valid="0",
            watch="test:clean",
            watch_share=0.025,
        )
        data = tiny(per_class=30, classes=2, test=10)
        run = train("at(steps=1)", config, out=tmp_path / "run", source=data)
        every = run.about["watching"]["every"]
        assert 1 < every < 6
        first = " ".join(capfd.readouterr().err.split())
        assert f"is watched every {every} epochs and after the last: at most" in first
        expected = [epoch for epoch in range(1, 7) if Cadence(every).due(epoch, 6)]
        assert [line["epoch"] for line in watched_lines(run)] == expected
        # other looks would be taken at other times: those of the beginning count
        trainer = trainer_of("at(steps=1)", data, watch="test:pgd-20", epochs=6)
        assert trainer.cadence.kept_in(run.about) == Cadence(every, run.about["watching"]["share"])

    def test_one_look_that_is_too_much_is_taken_and_said_even_when_quiet(
        self, tiny, tmp_path, capfd
    ):
        run = quick_train("at(steps=1)", tmp_path / "run", tiny(), watch="test:pgd-20", epochs=3)
        assert [line["epoch"] for line in watched_lines(run)] == [3]
        said = " ".join(capfd.readouterr().err.split())
        assert "once, after the last epoch" in said
        assert "more than watch_share=0.1" in said

    def test_the_share_is_part_of_the_identity_only_where_it_decides(self, tiny):
        def identity(**options):
            return trainer_of("at", tiny(), **options).about["identity"]

        plain, looks = identity(), {"watch": "test:clean"}
        assert identity(**looks, watch_every=1) == identity(**looks, watch_every=2) == plain
        assert len({plain, identity(**looks), identity(**looks, watch_share=0.5)}) == 3

    def test_what_the_user_says_wins_and_estimates_follow(self, tiny):
        trainer = trainer_of("at", tiny(), **FACTS, watch_every=4)
        assert trainer.cadence == Cadence(4)
        assert "watching" not in trainer.about
        options = {**SMALL, "model": "cnn(width=2)", "epochs": 6, "watch": "test:pgd-20"}
        found = {part.name: part.times for part in estimate("at", **options, source=tiny()).parts}
        assert found["watching"] == 1

    @pytest.mark.parametrize("card", [None, 3, {"every": 0, "share": 0.1}, {"every": "2"}])
    def test_a_card_that_does_not_say_it_is_refused(self, card):
        with refused("watching", "restore"):
            Cadence(2, 0.1).kept_in(json.loads(sealed_text({"watching": card})))

    @pytest.mark.parametrize("share", [0, -1, 1.5, float("nan")])
    def test_a_share_is_a_share(self, share):
        with refused("watch_share"):
            TrainConfig(watch="test:clean", watch_share=share)


class TestVerdictAny:
    @pytest.mark.parametrize("attack", ["pgd-2(verdict=any)", "suite(pgd-2)"])
    def test_it_judges_nothing(self, attack, tiny):
        with refused("valid_attack", attack, "watching only", "watch=test:"):
            trainer_of("at", tiny(), valid="0.2", valid_attack=attack)

    def test_nor_does_it_feed_a_policy(self, tiny):
        recipe = "at+cost(equalise=1, attack='pgd-2(verdict=any)')"
        with refused("attack of cost", "watching only"):
            trainer_of(recipe, tiny(), valid="0.2")

    def test_it_may_be_watched_and_attacks_that_have_no_other_may_judge(self, tiny):
        trainer_of("at", tiny(), watch="test:pgd-2(verdict=any)")
        found = trainer_of("at", tiny(), valid="0.2", valid_attack="apgd-ce(steps=3)")
        assert found.chosen_by == Seen("valid", "apgd-ce(steps=3)")
