"""An image transform of the user's own, as a condition: one class, and no other line."""

import json
import sys

import forked
import numpy as np
import pytest
import torch
from asked import audit_target
from refusals import refused
from torch import nn
from typer.testing import CliRunner

import classwise
from classwise import cli
from classwise.attacks.names import parse_condition, parse_conditions
from classwise.attacks.threat import Threat
from classwise.judging.audits import read_ledger

MODULE = '''
import torch
from torch import nn

class Blur:
    def __init__(self, radius=1):
        self.radius = radius
    def __call__(self, images):
        size = 2 * self.radius + 1
        return nn.functional.avg_pool2d(images, size, 1, self.radius)

class Hidden:
    def __init__(self, radius):
        self.kernel = 2 * radius + 1
    def __call__(self, images):
        return images

def darker(images):
    return images / 2

class Speckle:
    """Draws random numbers by the images' numbers."""
    severity = 3
    def __init__(self, size=0.1):
        self.size = size
    def __call__(self, images, index, seed):
        from classwise.draws import Draws
        noise = Draws(seed, "speckle").normal(index, images.shape[1:], images.dtype)
        return (images + self.size * noise).clamp(0, 1)

class Careless:
    def __call__(self, images):
        return (images + 0.1 * torch.randn_like(images)).clamp(0, 1)

def too_bright(images):
    return 2 * images

def cut(images):
    return images[:, :, 1:]

def attack(images, labels):
    return images

def net(num_classes):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))

def other(num_classes):
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))
'''
BLUR = "my_shifts:Blur(radius=2)"
THREAT = Threat.of(0.1)


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "my_shifts.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("my_shifts", None)
    yield tmp_path
    sys.modules.pop("my_shifts", None)


def run(*words):
    return CliRunner().invoke(cli.app, [str(word) for word in words])


def audit(model="my_shifts:net", out="kept", attacks=f"clean,{BLUR}", **more):
    eps = 0.1 if "pgd" in attacks or "suite" in attacks else None
    (found,) = audit_target(
        model, data="digits", attacks=attacks, eps=eps, folder=out, quiet=True, **more
    )
    return found.report


class TestReaders:
    def test_it_is_audited_kept_and_read_back(self, here):
        report = audit(out=here / "kept")
        assert list(report) == ["clean", BLUR]
        images, labels = (classwise.open_data("digits").test.images.float() / 255), None
        labels = classwise.open_data("digits").test.labels
        import my_shifts

        with torch.no_grad():
            right = my_shifts.net(10)(my_shifts.Blur(2)(images)).argmax(1) == labels
        assert report.overall[BLUR] == pytest.approx(right.double().mean().item())
        (read,) = read_ledger(here / "kept")
        assert read.report.by_class[BLUR] == report.by_class[BLUR]
        assert read.report[BLUR].kind == "shift"

    def test_nothing_is_run_twice(self, here, monkeypatch):
        first = audit(out=here / "kept")
        import my_shifts

        monkeypatch.setattr(my_shifts.Blur, "__call__", None)  # would raise if it was called
        again = audit(out=here / "kept", attacks="clean")
        assert again.by_class["clean"] == first.by_class["clean"]

    def test_other_settings_and_other_code_are_other_conditions(self, here):
        def key(name):
            return parse_condition(name, THREAT, own=True).key

        keys = {key(BLUR), key("my_shifts:Blur"), key("my_shifts:Blur(radius=3)")}
        before = key("my_shifts:darker")
        sys.modules.pop("my_shifts")
        (here / "my_shifts.py").write_text(MODULE.replace("images / 2", "images / 4"))
        assert len({*keys, before, key("my_shifts:darker")}) == 5

    def test_report_diff_and_gate_take_it_like_any_condition(self, here):
        for name in ("net", "other"):
            audit(f"my_shifts:{name}", here / name, f"clean,{BLUR},{BLUR}>pgd-3")
        for file in ("page.html", "page.csv", "page.json", "page.md", "page.tex"):
            done = run("report", here / "net", here / "other", "--out", here / file)
            assert done.exit_code == 0, done.output
            assert "Blur" in (here / file).read_text()
        long = json.loads((here / "page.json").read_text())
        assert BLUR in json.dumps(long)
        done = run("diff", here / "net", here / "other", "--attacks", BLUR)
        assert (done.exit_code, BLUR in done.stdout) == (0, True), done.output
        contract = here / "contract.toml"
        contract.write_text(GATE.format(name=BLUR))
        done = run("gate", contract, here / "net")
        assert (done.exit_code, BLUR in done.stdout) == (1, True), done.output

    def test_readers_import_nothing(self, here):
        audit(out=here / "kept")
        (here / "my_shifts.py").write_text("raise SystemExit('imported')")
        for words in (["report", "kept", "--out", "page.html"], ["audit", "--from", "kept"]):
            code, *said = forked.start(*words, cwd=here).end()
            assert code == 0, said


GATE = """
[[rule]]
no_class_below = "99 %"
under = '{name}'
"""


@pytest.mark.usefixtures("here")
class TestObjects:
    def test_an_object_is_the_same_condition_as_its_name(self):
        import my_shifts

        named = parse_condition(BLUR, THREAT, own=True)
        (given,) = parse_conditions([my_shifts.Blur(2)], THREAT)
        assert (given.name, given.key) == (named.name, named.key) == (BLUR, named.key)

    def test_a_setting_that_is_not_kept_is_named_as_it_was_written(self):
        name = "my_shifts:Hidden(radius=2)"
        assert parse_condition(name, THREAT, own=True).name == name

    def test_functions_and_composition_with_an_attack(self):
        import my_shifts

        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
        images, labels = torch.rand(30, 1, 4, 4), torch.arange(30) % 3
        name = "my_shifts:darker>pgd-4"
        facts = {"eps": 0.05, "batch_size": 7}
        both = classwise.audit(model, images, labels, attacks=[name], **facts)
        alone = classwise.audit(model, my_shifts.darker(images), labels, attacks=["pgd-4"], **facts)
        assert np.array_equal(both.confusion[name], alone.confusion["pgd-4"])
        assert both[name].kind == "shifted attack"

    def test_random_draws_by_number_do_not_depend_on_the_batch(self):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
        images, labels = torch.rand(30, 1, 4, 4), torch.arange(30) % 3
        name = "my_shifts:Speckle(size=0.4)"
        found = [
            classwise.audit(model, images, labels, attacks=[name], batch_size=size, seed=seed)
            for size, seed in ((30, 0), (7, 0), (30, 1))
        ]
        assert np.array_equal(found[0].confusion[name], found[1].confusion[name])
        assert not np.array_equal(found[0].confusion[name], found[2].confusion[name])
        assert parse_condition(name, THREAT, own=True).traits.strength == 3

    def test_black_boxes_take_transforms(self):
        images, labels = np.random.default_rng(0).random((9, 1, 4, 4), np.float32), [0, 1, 2] * 3
        report = classwise.audit(
            lambda x: x.reshape(len(x), -1)[:, :3], images, labels, attacks=["my_shifts:darker"]
        )
        assert report.overall["my_shifts:darker"] <= 1


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("my_shifts:Careless", ("alone", "(images, index, seed)")),
        ("my_shifts:too_bright", ("outside [0, 1]", "clip")),
        ("my_shifts:cut", ("returned", "as many images")),
        ("my_shifts:Blurr", ("Blurr", "Blur")),
        ("my_shifts:Blur(width=3)", ("width",)),
        ("no_such_module:Blur", ("no_such_module",)),
        ("my_shifts:attack>pgd-3", ("only an image transform",)),
        ("my_shifts:Blur>my_shifts:Blur>pgd-3", ("at most one transform",)),
        ("pgd-3>pgd-3", ("transform",)),
    ],
)
@pytest.mark.usefixtures("here")
def test_refusals(name, words):
    with refused(*words):
        audit(attacks=name, out=None)


def test_a_file_cannot_name_code(here):
    for where in ("watch", "valid_attack"):
        value = f"test:{BLUR}" if where == "watch" else BLUR
        with refused("code of its own"):
            config = classwise.TrainConfig(data="digits", epochs=1, **{where: value})
            classwise.train(classwise.load_recipe("at"), config, out=here / "run", quiet=True)
