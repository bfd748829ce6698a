"""A finished audit in a folder that may not be written is read: nothing new, nothing written."""

import json
from dataclasses import asdict, replace

import torch
from damages import judge, numbers

from classwise.doors.audit import audit
from classwise.doors.targets import audit_target
from classwise.doors.wish import Wish
from classwise.laws.made_up import few_digits
from classwise.locks import FolderLock, Holder, forget_the_dead
from classwise.record.remarks import write_remarks


def again(do, folder, monkeypatch):
    """Do it a second time where root, too, may write nothing: neither files nor locks."""
    first = do()
    before = {path: path.stat() for path in (folder, *folder.rglob("*"))}
    folder.chmod(0o555)

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    try:
        with monkeypatch.context() as patch:
            patch.setattr(FolderLock, "_create", refuse)
            second = do()
    finally:
        folder.chmod(0o755)
    after = {path: path.stat() for path in (folder, *folder.rglob("*"))}
    facts = ("st_mtime_ns", "st_ino", "st_size")
    assert {p: [getattr(s, n) for n in facts] for p, s in before.items()} == {
        p: [getattr(s, n) for n in facts] for p, s in after.items()
    }
    return first, second


def test_with_groups(tmp_path, monkeypatch):
    one, other = again(lambda: judge(tmp_path / "kept"), tmp_path / "kept", monkeypatch)
    assert list((tmp_path / "kept" / "groups").iterdir())
    assert numbers(one) == numbers(other)
    assert one.about == other.about


def test_with_remarks_and_labels_of_several_classes(tmp_path, monkeypatch):
    data = few_digits().train
    labels = [[int(label), (int(label) + 1) % 10] for label in data.labels]

    def box(images):  # a black one, which is worth a remark
        return images.detach().flatten(1)[:, 20:30]

    def judged():
        return audit(box, data.images, data.labels, attacks="clean", true_labels=labels,
                     name="box", out=tmp_path / "kept")  # fmt: skip

    one, other = again(judged, tmp_path / "kept", monkeypatch)
    assert list((tmp_path / "kept" / "truth").iterdir())
    assert (tmp_path / "kept" / "remarks.json").exists()
    assert numbers(one) == numbers(other)


def test_from_the_command_line(tmp_path, monkeypatch):
    (tmp_path / "plain_net.py").write_text(
        "from torch import nn\n\n\ndef make(num_classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    kept = tmp_path / "kept"

    def judged():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # the same network
            return audit_target(Wish("plain_net:make", data="digits", attacks="clean", limit=20,
                                     folder=kept, quiet=True))  # fmt: skip

    (one,), (other,) = again(judged, kept, monkeypatch)
    assert numbers(one.report) == numbers(other.report)


def test_what_differs_is_written(tmp_path):
    words = {"probed": None, "black_box": False, "notes": {}}
    for seen in (["odd: a"], ["odd: b"], []):
        write_remarks(tmp_path, "m", seen={"d": seen}, **words)
        text = (tmp_path / "remarks.json").read_text()
        assert [one for one in ("odd: a", "odd: b") if one in text] == seen


def test_what_a_killed_audit_left_of_its_lock_is_swept_up_and_nothing_else(tmp_path):
    path = tmp_path / ".audits.lock"
    for facts, left in (({"born": "1"}, False), ({}, True), ({"machine": "far"}, True)):
        holder = replace(Holder.here("testing"), token="other", **facts)
        path.write_text(json.dumps(asdict(holder)))
        forget_the_dead(tmp_path)
        assert path.exists() is left
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_an_audit_that_has_nothing_to_write_sweeps_it_up(tmp_path):
    judge(tmp_path / "kept")
    left = tmp_path / "kept" / ".audits.lock"
    left.write_text(json.dumps(asdict(replace(Holder.here("testing"), born="1"))))
    judge(tmp_path / "kept")
    assert not left.exists()
