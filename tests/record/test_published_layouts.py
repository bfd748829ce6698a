"""State dicts in other people's layouts give, through our loader, the logits of their networks."""

import published_nets as nets
import pytest
import torch
from refusals import refused

from classwise import load_model
from classwise.models import build_model
from classwise.models.layouts import LAYOUTS
from classwise.training.loop import train

IMAGES = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(1)).double()
MU, SIGMA = (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)
SMALL = (2, 2, 2, 2)


def normalised(x):
    mean, deviation = (torch.tensor(v).view(1, 3, 1, 1).double() for v in (MU, SIGMA))
    return (x - mean) / deviation


CASES = {
    "resnet18(width=4)": lambda w, x: nets.resnet(w, x, nets.basic, SMALL, 4, 10),
    "resnet50(width=2)": lambda w, x: nets.resnet(
        w, x, nets.bottleneck, (3, 4, 6, 3), 2, 10, imagenet=True
    ),
    "preactresnet18(width=4)": lambda w, x: nets.preact(w, x, 4, 10, last_norm=True, raw=False),
    "preactresnet18-nobn(width=4)": lambda w, x: nets.preact(
        w, x, 4, 10, last_norm=False, raw=False
    ),
    "preactresnet18-raw(width=4)": lambda w, x: nets.preact(w, x, 4, 10, last_norm=False, raw=True),
    "wrn(depth=10, widen=2)": lambda w, x: nets.wide(w, x, 10, 2, 10),
    "wrn(depth=16, widen=1)": lambda w, x: nets.wide(w, x, 16, 1, 10, twice=True),
    "wrn-silu(depth=16, widen=1)": lambda w, x: nets.deepmind(w, x, 16, 1, 10),
}


@pytest.mark.parametrize("arch", CASES)
def test_equal_logits_in_float64(arch, tmp_path):
    weights = nets.Weights()
    expected = CASES[arch](weights, normalised(IMAGES))
    torch.save(dict(weights), tmp_path / "theirs.pt")
    model = load_model(tmp_path / "theirs.pt", arch=arch, normalise=(MU, SIGMA)).double()
    assert (model(IMAGES) - expected).abs().max() <= 1e-12 * expected.abs().max()


def test_what_is_tested_small_is_there_large():
    """Names are the same at every width; of WRN and ResNet-50 also the published forms."""
    assert {arch.partition("(")[0] for arch in CASES} <= set(LAYOUTS)
    for arch, depth in (("wrn-28-10", 28), ("wrn-34-10", 34)):
        with torch.device("meta"):
            statistics = {"mean": [0.0], "deviation": [1.0]}
            ours = build_model(arch, num_classes=10, channels=3, **statistics).state_dict()
            assert f"features.stage3.{(depth - 4) // 6 - 1}.conv2.weight" in ours


class TestNormalisation:
    """It is taken from the file, or said; never assumed."""

    @pytest.fixture
    def weights(self):
        found = nets.Weights()
        CASES["resnet18(width=4)"](found, IMAGES)
        return found

    def opened(self, tmp_path, held, **options):
        torch.save(held, tmp_path / "theirs.pt")
        return load_model(tmp_path / "theirs.pt", arch="resnet18(width=4)", **options)

    def shaped(self, *shape):
        return torch.tensor(MU).view(shape), torch.tensor(SIGMA).view(shape)

    @pytest.mark.parametrize("kind", ["robustbench", "sequential", "numbered", "madrylab"])
    def test_the_file_carries_it(self, tmp_path, weights, kind):
        expected = CASES["resnet18(width=4)"](weights, normalised(IMAGES))
        wide, (mean, deviation) = self.shaped(1, 3, 1, 1), self.shaped(3, 1, 1)
        inner = {f"model.{name}": value for name, value in weights.items()}
        held = {
            "robustbench": {**weights, "mu": wide[0], "sigma": wide[1]},
            "sequential": {**inner, "normalize.mean": wide[0], "normalize.std": wide[1]},
            "numbered": {
                **{f"1.{name}": value for name, value in weights.items()},
                "0.mean": mean.flatten(),
                "0.std": deviation.flatten(),
            },
            "madrylab": {
                "model": {
                    **{f"module.{name}": value for name, value in inner.items()},
                    **{f"module.attacker.{name}": value for name, value in inner.items()},
                    "module.normalizer.new_mean": mean,
                    "module.normalizer.new_std": deviation,
                    "module.attacker.normalize.new_mean": mean,
                    "module.attacker.normalize.new_std": deviation,
                },
                "epoch": 150,
            },
        }[kind]
        found = self.opened(tmp_path, held).double()(IMAGES)
        assert (found - expected).abs().max() <= 1e-12 * expected.abs().max()
        with refused("carries its normalisation", "leave out"):
            self.opened(tmp_path, held, normalise="cifar10")

    def test_nothing_is_assumed(self, tmp_path, weights):
        with refused("does not say how its images are normalised", "--normalise none"):
            self.opened(tmp_path, dict(weights))
        plain = self.opened(tmp_path, dict(weights), normalise="none").double()
        expected = CASES["resnet18(width=4)"](weights, IMAGES)
        assert (plain(IMAGES) - expected).abs().max() <= 1e-12 * expected.abs().max()
        with refused("for 2 channels"):
            self.opened(tmp_path, dict(weights), normalise=((0, 0), (1, 1)))

    def test_a_second_copy_that_differs_is_not_dropped(self, tmp_path, weights):
        inner = {f"model.{name}": value for name, value in weights.items()}
        other = {f"attacker.{name}": value + 1 for name, value in inner.items()}
        with refused("belong to no part of it", "attacker"):
            self.opened(tmp_path, {**inner, **other}, normalise="none")


def test_the_wrong_variant_is_refused_where_names_show_it(tmp_path):
    weights = nets.Weights()
    CASES["preactresnet18-raw(width=4)"](weights, IMAGES)
    torch.save(dict(weights), tmp_path / "raw.pt")
    with refused("features.norm", "preactresnet18-nobn", "preactresnet18-raw"):
        load_model(tmp_path / "raw.pt", arch="preactresnet18(width=4)", normalise="none")
    CASES["wrn-silu(depth=16, widen=1)"](deep := nets.Weights(), IMAGES)
    torch.save(dict(deep), tmp_path / "deep.pt")
    with refused("does not fit wrn", "they may be wrn-silu"):
        load_model(tmp_path / "deep.pt", arch="wrn(depth=16, widen=1)", normalise="none")


def test_runs_begin_from_such_files_and_learn_from_them(tmp_path, tiny):
    weights = nets.Weights()
    nets.resnet(weights, torch.rand(2, 1, 8, 8).double(), nets.basic, SMALL, 4, 10)
    file, quick = tmp_path / "theirs.pt", {"eps": 0.1, "epochs": 1, "valid": "0.2", "quiet": True}
    torch.save({"state_dict": dict(weights), "state_dict_ema": dict(weights)}, file)
    quick |= {"source": tiny(), "model": "resnet18(width=4)"}
    with refused("state_dict and state_dict_ema", "@state_dict_ema"):
        train("clean", out=tmp_path / "a", begin=str(file), **quick)
    run = train("clean", out=tmp_path / "a", begin=f"{file}@state_dict_ema", **quick)
    assert run.about["begin"]["new"] == ["mean", "deviation"]
    teacher = f"absld(teacher='{file}@state_dict', steps=1)"
    with refused("teacher_model=resnet18, timm:NAME"):
        train(teacher, out=tmp_path / "b", **quick)
    quick |= {"teacher_model": "resnet18(width=4)"}
    with refused("normalised; say it: teacher_normalise=none"):
        train(teacher, out=tmp_path / "b", **quick)
    train(teacher, out=tmp_path / "b", teacher_normalise="none", **quick)
    run = train(teacher, out=tmp_path / "d", teacher_normalise=[[0.5], 0.25], **quick)
    assert run.config.teacher_normalise == ((0.5,), (0.25,))  # as it was written down
    with refused("deviations above 0"):
        train(teacher, out=tmp_path / "e", teacher_normalise=[[0.5], [0]], **quick)
    last = list(weights)[-1].partition(".")[0]
    torch.save({n.replace(last, "top"): t for n, t in weights.items()}, file)
    quick["teacher_normalise"] = "none"
    with refused("does not fit", "the teacher's file anew"):
        train(teacher.partition("@")[0] + "', steps=1)", out=tmp_path / "e", **quick)
    quick |= {"teacher_model": "", "teacher_normalise": "none"}
    with refused("teacher_normalise=none", "no teacher"):
        train("clean", out=tmp_path / "c", **quick)
