"""Radius of training and radius of judgement, and steps as shares of eps."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from asked import audit_target, parse_attack, perturb
from boundaries import LEARNS, quick_train, same_weights, weights
from refusals import refused

from classwise.attacks.ball import LINF
from classwise.attacks.fixed_steps import FixedSteps
from classwise.attacks.inner import InnerAttack, Moment
from classwise.classes.settings import Seen
from classwise.data.batches import Batches
from classwise.data.splits import split_indices
from classwise.methods import at
from classwise.models import twin
from classwise.recipe import compose
from classwise.recipe_text import make_method, parse_recipe, read_recipe
from classwise.spelling import Share
from classwise.training.config import TrainConfig
from classwise.training.loop import Trainer, train
from classwise.training.run import Run

LEVEL = 1 / 255


@pytest.fixture
def reached(monkeypatch):
    """How far named attacks and recipes' own ones moved images, and what they were told."""
    found = {"named": [], "own": []}
    named, own = FixedSteps._moved, InnerAttack.perturb

    def by_name(self, subject, batch, *facts):
        moved = named(self, subject, batch, *facts)
        found["named"].append((moved - batch.images).abs().max().item())
        return moved

    def of_the_recipe(self, model, batch, moment, **facts):
        views = own(self, model, batch, moment, **facts)
        away = (views["robust"] - batch.images).abs().max().item()
        found["own"].append((away, facts["radius"].max().item(), facts["step"].max().item()))
        return views

    monkeypatch.setattr(FixedSteps, "_moved", by_name)
    monkeypatch.setattr(InnerAttack, "perturb", of_the_recipe)
    return found


class TestRadiusOfJudgement:
    @pytest.mark.parametrize("levels", [2, 4, 8, 12, 16])
    def test_a_sweep_of_training_radii_is_judged_at_one(self, levels, tiny, tmp_path, reached):
        """The setting of a sweep over training radii: steps of 2/255, judged at 8/255."""
        options = {"eps": levels * LEVEL, "judge_eps": "8/255", "valid_attack": "pgd-10"}
        run = quick_train("at(steps=3, step=2/255)", tmp_path / "run", tiny(), epochs=1, **options)
        assert max(reached["named"]) == pytest.approx(8 * LEVEL, rel=1e-5)
        assert {round(255 * radius, 4) for _, radius, _ in reached["own"]} == {levels}
        assert {round(255 * step, 4) for _, _, step in reached["own"]} == {2}
        assert max(away for away, _, _ in reached["own"]) <= levels * LEVEL * (1 + 1e-5)
        assert (run.config.eps, run.config.eps_of_judge) == (levels * LEVEL, 8 * LEVEL)

    def test_validation_is_what_the_attack_at_that_radius_leaves(self, tiny, tmp_path):
        source = tiny(per_class=40, classes=3)
        run = quick_train("at(steps=2)", tmp_path / "run", source, **LEARNS, judge_eps=0.3)
        _, rows = split_indices(source.train.labels, run.config.valid, run.config.seed)
        (batch,) = Batches.of(source.train.subset(rows), 1000, torch.device("cpu"), rows).in_order()
        model = run.model("last")
        right = {}
        for eps in (0.05, 0.3):
            moved = perturb("pgd-2", model, batch, eps=eps, ball=LINF, seed=run.config.seed)
            right[eps] = (model(moved).argmax(1) == batch.labels).double().mean().item()
        assert run.history[-1]["valid"]["live"]["pgd-2"]["overall"] == pytest.approx(right[0.3])
        assert right[0.3] < right[0.05]

    def test_training_itself_does_not_notice(self, tiny, tmp_path):
        data = tiny(per_class=40, classes=3)
        plain = quick_train("at(steps=2)", tmp_path / "plain", data, **LEARNS)
        same = quick_train("at(steps=2)", tmp_path / "same", data, **LEARNS, judge_eps=0.05)
        other = quick_train("at(steps=2)", tmp_path / "other", data, **LEARNS, judge_eps=0.3)
        assert plain.history == same.history
        assert same_weights(weights(plain), weights(other))
        assert plain.history[-1]["valid"] != other.history[-1]["valid"]
        assert plain.about["identity"] != other.about["identity"]

    @pytest.mark.parametrize(("step", "expected"), [("eps/8", 0.1 / 8), ("0.03", 0.03)])
    def test_policies_see_their_own_attack_at_the_judges_radius(
        self, step, expected, tiny, tmp_path, reached
    ):
        text = f"trades(steps=2, step={step})+wat+ccm"
        quick_train(text, tmp_path / "run", tiny(), judge_eps=0.1, epochs=3)
        judged = [one for one in reached["own"] if one[1] == pytest.approx(0.1)]
        assert judged
        for away, _, stride in judged:
            assert away <= 0.1 * (1 + 1e-5)
            assert stride == pytest.approx(expected)
        assert any(radius > 0.1001 for _, radius, _ in reached["own"])  # training's

    def test_the_gate_looks_at_the_judges_radius(self, tiny, tmp_path):
        text = "at(steps=2)+fawa(threshold=0.5, start=0)"
        data = tiny(per_class=40, classes=3)
        near = quick_train(text, tmp_path / "near", data, **LEARNS, judge_eps=0)
        far = quick_train(text, tmp_path / "far", data, **LEARNS, judge_eps=0.9)
        assert near.history[-1]["averages"]["fawa"] > 0
        assert far.history[-1]["averages"]["fawa"] == 0
        assert same_weights(weights(near), weights(far))

    def test_audits_begin_at_the_judges_radius(self, tmp_path):
        options = {"data": "digits", "subset": 60, "epochs": 1, "model": "cnn(width=2)"}
        run = train(
            "at(steps=1)", out=tmp_path / "run", eps=0.05, judge_eps=0.1, quiet=True, **options
        )
        facts = {"limit": 20, "quiet": True}
        (own,) = audit_target(str(run.path), attacks="clean,pgd-1,pgd-1(eps=0.2)", **facts)
        assert {name: own.report[name].eps for name in own.report} == pytest.approx(
            {"clean": 0, "pgd-1": 0.1, "pgd-1(eps=51/255)": 0.2}
        )

    def test_what_makes_no_sense_is_refused_before_training(self, tiny, tmp_path):
        with refused("eps is 8.0", "8/255"):
            TrainConfig(judge_eps=8)
        assert TrainConfig(judge_eps=8, norm="L2").eps_of_judge == 8
        assert TrainConfig(judge_eps=0).eps_of_judge == 0
        assert TrainConfig(eps=0.1).eps_of_judge == 0.1
        with refused("pgd-2(eps=", "judge_eps"):
            quick_train("at", tmp_path / "run", tiny(), valid_attack="pgd-2(eps=4/255)")
        with refused("eps is 2.0", "2/255"):
            quick_train("at", tmp_path / "run", tiny(), watch="test:pgd-2(eps=2)")
        assert not (tmp_path / "run").exists()


class TestSteps:
    @pytest.mark.parametrize("base", ["at", "trades", "mart", "absld(teacher=x)"])
    def test_the_default_is_a_quarter_spelt_out_or_not(self, base):
        name, bracket, rest = base.partition("(")
        spelt = f"{name}(step=eps/4{',' + rest if bracket else ')'}"
        plain, said = parse_recipe(base), parse_recipe(spelt)
        assert plain == said
        assert plain.canonical[name]["step"] == "eps/4"
        assert json.loads(json.dumps(plain.canonical))[name]["step"] == "eps/4"

    @pytest.mark.parametrize(
        ("text", "eps", "step"),
        [
            ("at", 0.2, 0.05),
            ("at(step=eps/8)", 0.2, 0.025),
            ("at(step=eps/2.5)", 0.2, 0.08),
            ("at(step=2/255)", 0.2, 2 / 255),
            ("at(step=2/255)", 16 / 255, 2 / 255),
            ("clean", 0.2, 0.05),
        ],
    )
    def test_a_share_follows_the_radius_and_a_number_does_not(self, text, eps, step):
        settings = parse_recipe(text).slots.alike(3, eps)
        assert settings.step.tolist() == pytest.approx([step] * 3)
        assert settings.margin.tolist() == pytest.approx([eps] * 3)

    @pytest.mark.parametrize("text", ["at(step=eps/8)", "at(step=0.01)", "at", "at(step=eps/3)"])
    def test_records_give_the_recipe_back(self, text):
        recipe = parse_recipe(text)
        stored = json.loads(json.dumps(recipe.canonical))
        assert compose(make_method(n, options) for n, options in stored.items()) == recipe

    def test_every_way_to_write_it(self, tmp_path):
        file = tmp_path / "recipe.toml"
        file.write_text('compose = "at"\n[at]\nstep = "eps/8"\n')
        expected = parse_recipe("at(step=eps/8)")
        assert read_recipe(file) == expected
        assert parse_recipe("at", {"at.step": "eps/8"}) == expected
        assert compose([at(step="eps/8")]) == compose([at(step=Share(8))]) == expected
        assert compose([at(step=None)]) == compose([at()])  # as older records have it

    @pytest.mark.parametrize("step", ["eps/0", "eps/-2", "eps/x", "fast", "0", "2", "eps", "[1]"])
    def test_nonsense_is_refused(self, step):
        with refused("step"):
            parse_recipe(f"at(step={step})")

    @pytest.mark.parametrize("attack", ["pgd-3", "cw-3", "pgd-3(verdict=any)"])
    def test_audits_read_the_same_spelling(self, attack, net):
        model = net().eval()
        images = torch.rand(
            6, 1, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
        )
        index = torch.arange(6)
        batch = Batches(images, index % 4, index, 6)
        inside = attack.partition("(")[2].rstrip(")")
        call = attack.partition("(")[0]

        def moved(step, eps):
            text = f"{call}({','.join(filter(None, [f'step={step}', inside]))})"
            (one,) = batch.in_order()
            facts = {"eps": eps, "ball": LINF, "seed": 0}
            return perturb(text, model, one, **facts)

        for eps in (0.1, 0.4):
            torch.testing.assert_close(moved("eps/8", eps), moved(eps / 8, eps), rtol=0, atol=1e-15)
        assert not torch.equal(moved("eps/8", 0.4), moved("eps/2", 0.4))
        assert parse_attack(f"{call}(step=eps/4)").name == call
        assert parse_attack(f"{call}( step = eps/8 )").name == f"{call}(step=eps/8)"


class TestGatesNeedAnAttack:
    """A gate on robust accuracy must not open on clean accuracy, nor wait for images in vain."""

    @pytest.mark.parametrize(
        "options", [{"valid_attack": "clean"}, {"valid": "0"}], ids=["clean", "no images"]
    )
    @pytest.mark.parametrize("text", ["at(steps=1)+fawa", "at(steps=1)+cfa(gate=share)"])
    def test_it_is_refused_before_training(self, text, options, tiny, tmp_path):
        with refused("fawa", "robust accuracy", "valid=0.02"):
            quick_train(text, tmp_path / "run", tiny(), **options)
        assert not (tmp_path / "run").exists()

    def test_other_averages_need_none(self, tiny, tmp_path):
        run = quick_train("at(steps=1)+ema(start=1)", tmp_path / "run", tiny(), valid="0")
        assert "ema-last" in run.weights


class TestTracedOnce:
    @pytest.fixture
    def traced(self, monkeypatch):
        """The networks that were traced."""
        found, rewritten = [], twin._rewritten

        def counted(model):
            found.append(model)
            return rewritten(model)

        monkeypatch.setattr(twin, "_rewritten", counted)
        return found

    def test_a_network_and_its_averages_are_traced_once_in_a_run(self, tiny, tmp_path, traced):
        run = quick_train(
            "at(steps=1)+ema(start=0)+swa(start=0)", tmp_path / "run", tiny(), epochs=3
        )
        assert {"ema", "swa", "live"} == run.history[-1]["valid"].keys()
        assert len(traced) == 2  # the network, and the one that carries the averages in turn

    def test_the_twin_has_the_weights_of_every_look(self, tiny, traced):
        recipe, config = parse_recipe("at(steps=1)"), TrainConfig(model="resnet9(width=8)", eps=0.1)
        seen, judge = Seen("valid", "pgd-3"), torch.device("cpu")
        trainer = Trainer(Run(Path("none")), recipe, config, tiny(per_class=40), judge)
        for epoch in (1, 1, 2):
            for weight in trainer.model.parameters():
                weight.data.mul_(torch.randn_like(weight).mul_(0.3).add_(1))
            moment = Moment(0, epoch, 3)
            found = trainer.checker.look(trainer.model, frozenset({seen}), moment)
            fresh = replace(trainer.checker, _asked={})
            wanted = fresh.look(trainer.model, frozenset({seen}), moment)
            assert found[seen].confusion.equal(wanted[seen].confusion)
        assert len(traced) == 1 + 3
