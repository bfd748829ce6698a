from dataclasses import replace

import numpy as np
import pytest
import torch
from asked import audit_target
from ledgers import verdicts
from refusals import refused
from torch import nn

from classwise.auditing.flags import check_records
from classwise.data.sources import open_data
from classwise.doors.health import check_health
from classwise.judging.audits import read_ledger
from classwise.judging.gate import gate
from classwise.record.card import audit_facts
from classwise.record.remarks import read_remarks, write_remarks
from classwise.report.html import load_runs, write_report
from classwise.report.tables import csv_table, latex_table, markdown_table

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
EPS = 0.15


@pytest.fixture(scope="module")
def digits():
    """A small net that knows its digits, and 200 images it has not seen."""
    source = open_data("digits")
    train, test = source.train, source.test
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    x, y = train.images.float() / 255, train.labels
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(150):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()
    return net.eval(), test.images[:200].float() / 255, test.labels[:200]


class Wrapped(nn.Module):
    """A net behind some mischief."""

    def __init__(self, net, before=lambda x: x, after=lambda z: z):
        super().__init__()
        self.net, self.before, self.after = net, before, after
        self.eval()

    def forward(self, x):
        return self.after(self.net(self.before(x)))


def flags(model, digits, **facts):
    found = check_health(model, *digits[1:], **{"eps": EPS, "class_names": NAMES, **facts})
    return {flag.name: flag for flag in found}


class TestHonest:
    def test_an_honest_net_raises_no_flag(self, digits):
        assert flags(digits[0], digits) == {}
        assert flags(digits[0], digits, norm="L2", eps=0.5) == {}

    def test_so_does_a_linear_one_on_which_one_step_is_as_good_as_many(self, digits):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
        _, images, labels = digits
        optimiser = torch.optim.Adam(net.parameters(), lr=0.05)
        for _ in range(100):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(images), labels).backward()
            optimiser.step()
        assert flags(net.eval(), digits) == {}

    def test_two_classes_are_enough(self, digits):
        net, images, labels = digits
        few = labels < 2
        two = Wrapped(net, after=lambda z: z[:, :2])
        assert check_health(two, images[few], labels[few], eps=EPS) == []

    @pytest.mark.usefixtures("untouched_random_state")
    def test_the_model_is_left_as_it_was(self, digits, net):
        model = net(10).train()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        images = digits[1][:20].double()
        found = check_health(model, images, digits[2][:20], eps=EPS, steps=2, queries=5)
        assert model.training
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
        assert all(p.grad is None and p.requires_grad for p in model.parameters())
        assert found[0].name == "train-mode"


class TestMasked:
    def test_huge_logits(self, digits):
        found = flags(Wrapped(digits[0], after=lambda z: 1e4 * z), digits)
        assert {"zero-gradients", "black-box-beats-white-box"} <= set(found)
        assert "cross-entropy" in found["zero-gradients"].words
        assert "0% for logit gap" in found["zero-gradients"].words
        assert len(found["zero-gradients"].classes) == 10

    def test_quantised_input(self, digits):
        rounded = Wrapped(digits[0], before=lambda x: (4 * x).round() / 4)
        found = flags(rounded, digits)
        assert {"zero-gradients", "black-box-beats-white-box"} <= set(found)
        assert "100% for cross-entropy and 100% for logit gap" in found["zero-gradients"].words

    def test_a_single_masked_class_is_named(self, digits):
        def hide(z):
            return torch.where((z.argmax(1) == 3)[:, None], z.detach(), z)

        found = flags(Wrapped(digits[0], after=hide), digits)
        assert found["zero-gradients"].classes == ("three",)
        assert found["black-box-beats-white-box"].classes in ((), ("three",))

    def test_gradients_that_lie_off_the_data_are_worse_with_more_steps(self, digits):
        class Lying(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                on_grid = ((15 * x - (15 * x).round()).abs() < 1e-3) | (x > 0.99)
                ctx.save_for_backward(on_grid.flatten(1).all(1))
                return x.clone()

            @staticmethod
            def backward(ctx, slope):
                (honest,) = ctx.saved_tensors
                return torch.where(honest[:, None, None, None], slope, -slope)

        images = (15 * digits[1]).round() / 15
        model = Wrapped(digits[0], before=Lying.apply)
        found = check_health(model, images, digits[2], eps=EPS, class_names=NAMES)
        assert "more-steps-weaker" in {flag.name for flag in found}

    def test_a_net_that_looks_the_nearest_image_up_survives_too_much(self, digits):
        _, images, labels = digits

        def cheat(x):
            distance = torch.cdist(x.flatten(1), images.flatten(1))
            return nn.functional.one_hot(labels[distance.argmin(1)], 10).float() + 0 * x.sum()

        found = flags(Wrapped(nn.Identity(), after=cheat), digits)
        assert "robust-at-huge-eps" in found
        assert "zero-gradients" in found

    def test_a_larger_radius_that_breaks_nothing_more(self):
        """It takes many images: a single robust class may well lose nobody."""

        def at(eps, count=300, fallen=50, **facts):
            labels = np.arange(count) % 3
            told = np.where(np.arange(count) < fallen, (labels + 1) % 3, labels)
            found = verdicts(range(count), predicted=told, labels=labels, **facts)
            return replace(found, radius=np.full(count, eps))

        names = ("a", "b", "c")
        (flag,) = check_records([at(2 / 255), at(4 / 255), at(8 / 255), at(16 / 255)], names)
        assert flag.name == "larger-eps-no-stronger"
        assert "none of the 250 images" in flag.words
        for honest in (
            [at(8 / 255), at(16 / 255, fallen=51)],  # one more falls
            [at(8 / 255, 250), at(16 / 255, 250)],  # too few
            [at(12 / 255), at(16 / 255)],  # not twice as far
            [at(1 / 255), at(2 / 255)],  # so near that nothing need fall
        ):
            assert check_records(honest, names) == []


class TestBroken:
    def test_a_model_that_refuses_what_is_no_image(self, digits):
        def checked(x):
            assert 0 <= x.min() <= x.max() <= 1
            return x

        assert flags(Wrapped(digits[0], before=checked), digits) == {}

    def test_randomness(self, digits):
        noise = torch.Generator().manual_seed(0)
        shaky = Wrapped(digits[0], after=lambda z: z + 0.1 * torch.randn(z.shape, generator=noise))
        assert "random" in flags(shaky, digits)

    def test_probabilities(self, digits):
        assert "probabilities" in flags(Wrapped(digits[0], after=lambda z: z.softmax(1)), digits)
        logs = flags(Wrapped(digits[0], after=lambda z: z.log_softmax(1)), digits)
        assert "probabilities" not in logs

    def test_answers_that_depend_on_the_batch(self, digits):
        def normed(x):
            return (x - x.mean(0)) / (x.std(0) + 0.1) if len(x) > 1 else 0 * x

        assert "batch-dependent" in flags(Wrapped(digits[0], before=normed), digits)

    def test_a_part_that_will_not_leave_train_mode(self, digits):
        class Stubborn(nn.Dropout):
            def train(self, mode=True):
                return super().train(mode or True)

        found = flags(nn.Sequential(Stubborn(0.0), digits[0]).eval(), digits)
        assert "such as 0" in found["train-mode"].words

    def test_normalisation_twice_or_never(self, digits):
        net, images, _ = digits
        mean, deviation = images.mean(), images.std()
        twice = flags(Wrapped(net, before=lambda x: (x - mean) / deviation), digits)
        assert "double-normalisation" in twice
        pale = 0.2 * images + 0.4
        never = Wrapped(net, before=lambda x: x * deviation + mean)
        found = check_health(never, pale, digits[2], eps=0.02, class_names=NAMES)
        assert "missing-normalisation" in {flag.name for flag in found}

    def test_grey_levels(self, digits):
        found = flags(Wrapped(digits[0], before=lambda x: x / 255), digits)
        assert "grey-levels" in found

    def test_a_black_box_is_checked_without_gradients(self, digits):
        from classwise.models.blackbox import BlackBox

        net = digits[0]

        def scores(array):
            with torch.no_grad():
                return net(torch.from_numpy(array)).softmax(1).numpy()

        assert set(flags(BlackBox(scores), digits)) == {"probabilities"}


class TestRecords:
    def told(self, fallen, condition, radius=0.1, count=300):
        samples = np.arange(count)
        predicted = np.where(np.isin(samples, fallen), (samples + 1) % 3, samples % 3)
        found = verdicts(samples, predicted=predicted, condition=condition)
        found.radius[:] = radius
        return found

    def names(self, *found):
        return [flag.name for flag in check_records(found, ("a", "b", "c"))]

    def test_stronger_attacks_must_break_no_fewer(self):
        many, few = range(60), range(20)
        for name, weak, strong in (
            ("black-box-beats-white-box", "square", "apgd-ce"),
            ("black-box-beats-white-box", "square(queries=100)", "pgd-20"),
            ("more-steps-weaker", "pgd-10", "pgd-40"),
            ("more-steps-weaker", "fgsm", "pgd-10"),
        ):
            assert self.names(self.told(many, weak), self.told(few, strong)) == [name]
            assert self.names(self.told(few, weak), self.told(many, strong)) == []
        near, far = self.told(many, "pgd-10", 0.1), self.told(few, "pgd-10", 0.2)
        assert self.names(far, near) == ["larger-eps-weaker"]
        assert self.names(self.told(few, "pgd-10", 0.1), self.told(many, "pgd-10", 0.2)) == []

    def test_chance_raises_no_flag(self):
        weak, strong = self.told(range(20), "fgsm"), self.told(range(5, 23), "pgd-10")
        assert self.names(weak, strong) == []

    def test_the_class_is_named_where_it_is_certain(self):
        weak = self.told(range(0, 90, 3), "fgsm")
        strong = self.told(range(1, 90, 3), "pgd-10")
        (flag,) = check_records([weak, strong], ("a", "b", "c"))
        assert flag.classes == ("a",)
        assert "(a)" in str(flag)

    def test_square_at_the_end_of_a_suite(self):
        suite = self.told(range(30), "autoattack")
        suite.broken_by[:30] = "apgd-ce"
        assert self.names(suite) == []
        suite.broken_by[:10] = "square"
        assert self.names(suite) == ["black-box-beats-white-box"]

    def test_other_norms_radii_and_clean_images_are_not_compared(self):
        assert self.names(self.told(range(60), "clean", 0), self.told([], "pgd-10")) == []
        assert self.names(self.told(range(60), "fgsm", 0.2), self.told([], "pgd-10")) == []


def test_flags_are_kept_beside_the_audit_and_shown_with_it(tmp_path, monkeypatch):
    (tmp_path / "sick_net.py").write_text(
        "import torch\nfrom torch import nn\n"
        "class Rounded(nn.Module):\n"
        "    def __init__(self, net):\n"
        "        super().__init__()\n"
        "        self.net = net\n"
        "    def forward(self, x):\n"
        "        return self.net((4 * x).round() / 4)\n"
        "def make(num_classes):\n"
        "    torch.manual_seed(0)\n"
        "    return Rounded(nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))).eval()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    facts = {"data": "digits", "attacks": "clean", "eps": EPS, "quiet": True, "limit": 20}
    folder = tmp_path / "kept"
    (found,) = audit_target("sick_net:make", folder=folder, **facts)
    assert "flags" not in found.report.about
    (found,) = audit_target("sick_net:make", folder=folder, health=True, **facts)
    assert any("zero-gradients" in words for words in found.report.about["flags"])
    (again,) = read_ledger(folder)
    assert again.report.about["flags"] == found.report.about["flags"]
    write_remarks(folder, "another model", seen={"d": ["x"]}, probed=[], black_box=False, notes={})
    (again,) = read_ledger(folder)
    assert again.report.about["flags"] == found.report.about["flags"]
    # An audit without a probe leaves what the probe found; every form of the report says it.
    (later,) = audit_target("sick_net:make", folder=folder, **facts)
    assert "flags" not in later.report.about  # it did not look
    runs = load_runs([folder])
    write_report(runs, tmp_path / "page.html")
    forms = [form(runs[0].audits) for form in (markdown_table, latex_table, csv_table)]
    forms.append(repr(runs[0].audits[0].report))
    contract = tmp_path / "contract.toml"
    contract.write_text('[[rule]]\nunder = "clean"\noverall_at_least = "1 %"\n')
    forms.append(gate(contract, folder).markdown())
    for text in [(tmp_path / "page.html").read_text(), *forms]:
        assert "the gradient is exactly zero at rightly classified images" in text


def test_a_partial_audit_and_a_black_box_are_said_to_be_such_in_the_report(tmp_path, monkeypatch):
    (tmp_path / "plain_net.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def make(num_classes):\n"
        "    torch.manual_seed(0)\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes)).eval()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    facts = {"data": "digits", "attacks": "clean", "quiet": True, "folder": tmp_path / "kept"}
    audit_target("plain_net:make", question="worst>=0.5", **facts)
    (partial,) = read_ledger(tmp_path / "kept")
    assert "worst>=0.5 under clean: no" in partial.report.about["note"]
    assert "not examined" in markdown_table([partial])
    words = gate_words(tmp_path)
    assert "only in part" in words
    assert "not examined" in words
    # Another attack, in full, takes nothing back; the same one in full does.
    audit_target("plain_net:make", **{**facts, "attacks": "fgsm"})
    assert "not examined" in markdown_table(read_ledger(tmp_path / "kept"))
    audit_target("plain_net:make", **facts)
    (whole,) = read_ledger(tmp_path / "kept")
    assert "note" not in whole.report.about
    assert "not examined" not in markdown_table([whole])
    write_remarks(
        tmp_path / "kept", only_hash(tmp_path / "kept"), seen={}, probed=None, black_box=True,
        notes={},
    )  # fmt: skip
    (boxed,) = read_ledger(tmp_path / "kept")
    assert "only attacks without gradients were run" in markdown_table([boxed])


def gate_words(folder):
    (folder / "contract.toml").write_text('[[rule]]\nunder = "clean"\noverall_at_least = "1 %"\n')
    return gate(folder / "contract.toml", folder / "kept").markdown()


def only_hash(folder):
    (one,) = {facts["model_hash"] for facts in audit_facts(folder)}
    return one


def test_what_was_seen_on_other_data_stays(tmp_path):
    kept = {"probed": None, "black_box": False, "notes": {}}
    write_remarks(tmp_path, "h", seen={"test": ["random: a"]}, **kept)
    write_remarks(tmp_path, "h", seen={"train": ["weak: b"]}, **kept)
    test, train = (
        {"model_hash": "h", "data_hash": name, "attack_key": "k"} for name in ("test", "train")
    )
    assert read_remarks(tmp_path, [test]) == {"flags": ["random: a"]}
    assert read_remarks(tmp_path, [train]) == {"flags": ["weak: b"]}
    write_remarks(tmp_path, "h", seen={"test": []}, **kept)
    assert read_remarks(tmp_path, [test]) == {}
    assert read_remarks(tmp_path, [train, train]) == {"flags": ["weak: b"]}


def test_remarks_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "remarks.json").write_text("[1]")
    with refused("remarks.json", "delete it"):
        write_remarks(tmp_path, "h", seen={"d": ["x"]}, probed=None, black_box=False, notes={})


def outcome(condition, fallen):
    """A hundred samples of which the first have fallen."""
    labels = np.arange(100) % 10
    predicted = np.where(np.arange(100) < fallen, (labels + 1) % 10, labels)
    return verdicts(np.arange(100), predicted, labels, condition)


@pytest.mark.parametrize(
    ("weak", "strong", "flag"),
    [
        ("pgd-10", "pgd-20", "more-steps-weaker"),
        ("pgd-10", "pgd-20(target=unlikely)", None),
        ("pgd-10(target=likely)", "pgd-20(target=likely)", None),
        ("pgd-10", "pgd-20(step=1/255)", None),
        ("fgsm", "pgd-20", "more-steps-weaker"),
        ("fgsm", "pgd-20(step=0.001)", None),
        ("square", "pgd-20", "black-box-beats-white-box"),
        ("square", "pgd-5", None),
        ("square", "apgd-ce", "black-box-beats-white-box"),
        ("square", "apgd-ce(steps=3)", None),
        ("square", "autoattack", "black-box-beats-white-box"),
    ],
)
def test_only_attacks_that_must_be_stronger_are_compared(weak, strong, flag):
    found = check_records([outcome(weak, 40), outcome(strong, 0)], NAMES)
    assert [one.name for one in found] == ([flag] if flag else [])


@pytest.mark.parametrize(
    ("suite", "flagged"),
    [("suite(apgd-ce,square)", True), ("suite(square,apgd-ce)", False), ("suite(square)", False)],
)
def test_square_surprises_only_after_a_climb(suite, flagged):
    found = outcome(suite, 30)
    found.broken_by[:30] = "square"
    assert bool(check_records([found], NAMES)) == flagged


def test_it_takes_what_an_audit_takes(digits):
    _, images, labels = digits
    weight = np.random.default_rng(0).normal(size=(64, 10)).astype(np.float32)

    def scores(x):
        return x.reshape(len(x), -1) @ weight

    assert isinstance(check_health(scores, images.numpy(), labels.numpy(), eps="8/255"), list)
    with refused("8/255"):
        check_health(digits[0], images, labels, eps=8)
    with refused("label"):
        check_health(digits[0], images, labels + 10)
