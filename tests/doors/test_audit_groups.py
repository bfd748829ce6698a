"""Groups given to an audit from Python."""

import pytest
import torch
from refusals import refused

import classwise


class TestFromPython:
    def images(self):
        torch.manual_seed(0)
        return torch.rand(60, 1, 4, 4), torch.arange(60) % 3

    def model(self):
        torch.manual_seed(1)
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3))

    def test_groups_of_given_images(self):
        images, labels = self.images()
        model = self.model()
        cameras = ["<b>front</b>" if k < 40 else "rear" for k in range(60)]
        report = classwise.audit(
            model, images, labels, attacks="clean", eps=0.1, groups={"camera": cameras}
        )
        right = model(images).argmax(1) == labels
        found = report.by("camera")["clean"]
        assert found.by_group == {
            "<b>front</b>": pytest.approx(float(right[:40].double().mean())),
            "rear": pytest.approx(float(right[40:].double().mean())),
        }

    def test_new_groups_void_no_ledger_and_replace_the_old_ones(self, tmp_path):
        images, labels = self.images()
        asked = []

        class Counting(torch.nn.Module):
            def __init__(self, inner):
                super().__init__()
                self.inner = inner

            def forward(self, x):
                asked.append(len(x))
                return self.inner(x)

        def audit(groups):
            asked.clear()
            model = Counting(self.model())
            return classwise.audit(
                *(model, images, labels), attacks="clean", eps=0.1, out=tmp_path, groups=groups
            )

        first = audit({"camera": ["a", "b"] * 30})
        assert sum(asked) >= 60
        second = audit({"camera": ["a", "b", "c"] * 20, "track": ["1"] * 60})
        # what is asked again: the first look, and whether the model is steady
        assert sum(asked) < 6 * 60
        assert all(count != 60 for count in asked[:2])
        assert tuple(first.by("camera")["clean"].sizes) == ("a", "b")
        assert tuple(second.by("camera")["clean"].sizes) == ("a", "b", "c")
        third = audit(None)
        assert third.groups == ("class", "camera", "track")
        from classwise.judging.audits import read_ledger

        (stored,) = read_ledger(tmp_path)
        for name in ("camera", "track"):
            kept, told = stored.report.by(name)["clean"], second.by(name)["clean"]
            assert kept.by_group == told.by_group
            assert kept.worst_interval == told.worst_interval
            assert kept.tally.outside == told.tally.outside == 0

    def test_wrong_length(self):
        images, labels = self.images()
        with refused("groups['camera'] has 59 entries for 60 images"):
            classwise.audit(
                self.model(), images, labels, attacks="clean", groups={"camera": ["a"] * 59}
            )
