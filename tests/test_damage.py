"""Damaged files: noticed or harmless every time, named, and put right where that is possible."""

import json
import random
import shutil

import numpy as np
import pytest
import torch
from boundaries import files, quick_train
from refusals import refused
from typer.testing import CliRunner

from classwise import cli
from classwise.doors.audit import audit
from classwise.errors import ClasswiseError
from classwise.judging.audits import read_ledger
from classwise.judging.group_files import kept_groupings
from classwise.laws.made_up import few_digits
from classwise.record import shards
from classwise.record.remarks import _read_remarks
from classwise.record.tensors import read_tensors, write_tensors
from classwise.sealed import Damaged, seal, unseal
from classwise.training.run import Run

EPOCHS = 3


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A finished run."""
    out = tmp_path_factory.mktemp("runs") / "straight"
    return quick_train("at(steps=1)+ccm+ema", out, few_digits(), epochs=EPOCHS, watch="train:clean")


@pytest.fixture
def run(straight, tmp_path):
    return Run(shutil.copytree(straight.path, tmp_path / "run"))


def again(run):
    return quick_train(
        "at(steps=1)+ccm+ema",
        run.path,
        few_digits(),
        resume=True,
        epochs=EPOCHS,
        watch="train:clean",
    )


def flipped(content, seed, times):
    """The same bytes with one bit flipped, many times, anywhere."""
    draw = random.Random(seed)
    for _ in range(times):
        bit = draw.randrange(8 * len(content))
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        yield bytes(changed)


def cut_tails(content, seed, times):
    """The same bytes with the end lost or full of zeros."""
    draw = random.Random(seed)
    for number in range(times):
        begin = draw.randrange(len(content) - 1)
        changed = content[:begin] + bytes(len(content) - begin) * (number % 2)
        if changed != content:
            yield changed


def noticed(path, read, same, damages):
    """How often damage was refused by name; whatever was not must be the same as before."""
    good, count = path.read_bytes(), 0
    before = read()
    for content in damages:
        path.write_bytes(content)
        try:
            found = read()
        except ClasswiseError as reason:
            words = str(reason)
            count += path.name in words and "\n" not in words
        else:
            assert same(found, before)
    path.write_bytes(good)
    return count


def same_tensors(one, other):
    (here, said), (there, told) = one, other
    equal = set(here) == set(there) and all(torch.equal(here[n], there[n]) for n in here)
    # a checksum whose own name was hit is one more entry that nobody reads
    return equal and {**said, **told} == said


class TestTensors:
    @pytest.mark.parametrize(
        "name", ["state.safetensors", "state-before.safetensors", "weights/best.safetensors"]
    )
    def test_every_flipped_bit_and_every_lost_tail_is_noticed(self, run, name):
        path = run.path / name
        good = path.read_bytes()
        damages = [*flipped(good, 1, 60), *cut_tails(good, 2, 40)]
        count = noticed(path, lambda: read_tensors(path), same_tensors, damages)
        assert count >= len(damages) - 1  # the name of the checksum itself may be hit

    def test_bits_of_the_header_too(self, run):
        path = run.path / "weights" / "last.safetensors"
        good = path.read_bytes()
        header = 8 + int.from_bytes(good[:8], "little")
        damages = [one + good[header:] for one in flipped(good[:header], 3, 150)]
        noticed(path, lambda: read_tensors(path), same_tensors, damages)

    def test_every_kind_of_tensor_has_a_checksum(self, tmp_path):
        kinds = [torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool]
        some = {str(kind): torch.ones(3, 2, dtype=kind) for kind in kinds}
        some |= {"one": torch.tensor(2.5), "none": torch.empty(0, 4), "turned": torch.rand(3, 2).T}
        write_tensors(tmp_path / "x", some, {"best": {1: float("inf")}})
        found, about = read_tensors(tmp_path / "x")
        assert all(torch.equal(found[name], some[name]) for name in some)
        assert about == {"format": 1, "best": {"1": float("inf")}}

    def test_files_without_a_checksum_are_read_as_before(self, tmp_path):
        from safetensors.torch import save_file

        header = json.dumps({"format": 1, "epoch": 4})
        save_file({"one": torch.ones(2)}, tmp_path / "old", {"classwise": header})
        assert read_tensors(tmp_path / "old")[1] == {"format": 1, "epoch": 4}


class TestState:
    @pytest.mark.parametrize("how", ["flip", "tail", "gone"])
    def test_the_state_before_is_used_and_the_lost_epoch_repeated(self, run, straight, how, capfd):
        state = run.path / "state.safetensors"
        good = state.read_bytes()
        bad = next(flipped(good, 5, 1)) if how == "flip" else good[:-9] + bytes(9)
        state.write_bytes(bad)
        if how == "gone":
            state.unlink()
        assert files(again(run)) == files(straight)
        said = " ".join(capfd.readouterr().err.split())
        if how != "gone":
            assert "state.safetensors is damaged" in said
            assert f"goes on after epoch {EPOCHS - 1}" in said
            assert (run.path / "damaged" / "state.safetensors").read_bytes() == bad
        assert read_tensors(run.path / "state-before.safetensors")[1]["epoch"] == EPOCHS - 1

    def test_two_damaged_states_are_refused_and_nothing_is_touched(self, run):
        for name in ("state.safetensors", "state-before.safetensors"):
            (run.path / name).write_bytes((run.path / name).read_bytes()[:-9])
        before = files(run)
        with refused("state.safetensors", "no earlier state", "@last"):
            again(run)
        assert files(run) == before
        assert not (run.path / "damaged").exists()

    def test_before_the_first_epoch_nothing_is_lost(self, run, straight, capfd):
        for path in run.path.iterdir():
            if path.name not in ("run.json", "state.safetensors"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        (run.path / "state.safetensors").write_bytes(b"\x00" * 500)
        assert files(again(run)) == files(straight)
        assert "begins again" in capfd.readouterr().err


LINES = {
    "no UTF-8": lambda lines: [lines[0], b"\xff" + lines[1][1:], *lines[2:]],
    "no epoch": lambda lines: [lines[0], b'{"loss": {"total": 1}}\n', *lines[2:]],
    "a number": lambda lines: [lines[0], b"7\n", *lines[2:]],
    "an epoch that is none": lambda lines: [lines[0], b'{"epoch": "2"}\n', *lines[2:]],
    "a lost line": lambda lines: [lines[0], *lines[2:]],
    "a lost first line": lambda lines: lines[1:],
    "lines twice": lambda lines: [*lines, *lines],
    "deep": lambda lines: [lines[0], b'{"epoch": ' + b"[" * 100_000 + b"\n", *lines[2:]],
    "a changed digit": lambda lines: [
        lines[0],
        lines[1].replace(b'"overall": 0.', b'"overall": 1.'),
        *lines[2:],
    ],
    "an empty line": lambda lines: [lines[0], b"\n", *lines[1:]],
}


class TestHistory:
    @pytest.mark.parametrize("damage", LINES)
    def test_damage_is_refused_by_readers_and_put_right_by_resuming(
        self, run, straight, damage, capfd
    ):
        path = run.path / "history.jsonl"
        good = path.read_bytes()
        path.write_bytes(b"".join(LINES[damage](good.splitlines(keepends=True))))
        assert path.read_bytes() != good
        with refused("history.jsonl is damaged", "--resume"):
            _ = run.history
        assert files(again(run)) == files(straight)
        assert "written again from the state" in " ".join(capfd.readouterr().err.split())

    def test_random_bits(self, run):
        path = run.path / "history.jsonl"
        damages = list(flipped(path.read_bytes(), 7, 60))

        def same(one, other):  # an end that looks torn is passed over
            return all({**a, **b} == a for a, b in zip(one, other, strict=False))

        assert noticed(path, lambda: run.history, same, damages) >= len(damages) - 2

    @pytest.mark.parametrize("name", ["watch.jsonl", "times.jsonl"])
    def test_other_logs_are_set_aside_and_the_whole_part_kept(self, run, straight, name, capfd):
        path = run.path / name
        first, *others = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(first + b"\xff\n" + b"".join(others))
        if name == "watch.jsonl":
            with refused("watch.jsonl is damaged", "line 2", "UTF-8"):
                _ = run.looks
        assert files(again(run)) == files(straight)
        assert path.read_bytes() == first
        assert (run.path / "damaged" / name).exists()
        assert f"{name} is damaged" in " ".join(capfd.readouterr().err.split())

    @pytest.mark.parametrize("name", ["history.jsonl", "watch.jsonl"])
    @pytest.mark.parametrize(
        "line",
        [b'{"epoch": 1, "valid": 3}', b"7", b'{"epoch": 1, "train": {"x": 2}}'],
    )
    def test_a_report_leaves_out_curves_that_are_damaged(self, audited, tmp_path, name, line):
        (audited / name).write_bytes(line + b"\n")
        page = tmp_path / "report.html"
        result = CliRunner().invoke(cli.app, ["report", str(audited), "--out", str(page)])
        assert result.exit_code == 0, result.output
        assert "curves are left out" in " ".join(result.output.split())
        assert "curves are left out" in page.read_text()


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A folder of audits, with a grouping and remarks."""
    folder = tmp_path_factory.mktemp("audits") / "kept"
    judge(folder)
    return folder


@pytest.fixture
def audited(kept, tmp_path):
    return shutil.copytree(kept, tmp_path / "kept")


def network():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))


def judge(folder, attacks="clean,fgsm"):
    data = few_digits().train
    groups = {"half": ["a", "b"] * (len(data) // 2)}
    return audit(
        network(), data.images, data.labels, attacks=attacks, eps=0.1, groups=groups, out=folder
    )


def numbers(report):
    return {name: report[name].confusion.tolist() for name in report}


class TestShards:
    def test_every_flipped_bit_and_every_lost_tail_is_noticed(self, audited):
        for path in sorted((audited / "predictions").glob("*.parquet")):
            good = path.read_bytes()
            damages = [*flipped(good, 1, 40), *cut_tails(good, 2, 12)]

            def read():
                return [numbers(one.report) for one in read_ledger(audited)]

            count = noticed(path, read, lambda one, other: one == other, damages)
            assert count >= len(damages) - 1

    @pytest.mark.parametrize("how", ["flip", "tail", "html"])
    def test_it_is_set_aside_and_its_samples_are_judged_again(self, audited, how, capfd):
        before = numbers(judge(audited))
        path = next((audited / "predictions").glob("*fgsm*.parquet"))
        good = path.read_bytes()
        bad = {"flip": next(flipped(good, 3, 1)), "tail": good[:-50], "html": b"<html>"}[how]
        path.write_bytes(bad)
        with refused(path.name, "audit"):
            read_ledger(audited)
        capfd.readouterr()
        assert numbers(judge(audited)) == before
        said = " ".join(capfd.readouterr().err.split())
        assert "1 damaged shard is set aside" in said
        assert path.name in said
        assert (audited / "predictions" / "damaged" / path.name).read_bytes() == bad
        assert [numbers(one.report) for one in read_ledger(audited)] == [before]

    def test_what_is_missing_is_said_until_it_is_judged_again(self, audited):
        whole = next((audited / "predictions").glob("*fgsm*.parquet"))
        from classwise.record.card import audit_facts
        from classwise.record.ledger import Ledger
        from classwise.record.rows import Stamp, select

        (facts,) = [one for one in audit_facts(audited) if one["condition"] == "fgsm"]
        owner = [facts[n] for n in ("weights", "split", "model_hash", "data_hash", "attack_key")]
        stamp = Stamp("kept", *owner)
        ledger = Ledger.at(audited, {"recipe_name": "x", "data": {}})
        rows = ledger.read(stamp)
        whole.unlink()
        ledger.append(select(rows, np.arange(50)), stamp)
        other = ledger.append(select(rows, np.arange(50, len(rows.sample))), stamp)
        other.write_bytes(other.read_bytes()[:-30])
        judge(audited, "clean")  # notices the damage, but was not asked for fgsm
        (one,) = read_ledger(audited)
        assert "damaged shard" in one.report.about["note"]
        judge(audited)
        (one,) = read_ledger(audited)
        assert "note" not in one.report.about

    def test_a_file_is_verified_once(self, audited, monkeypatch):
        read_ledger(audited)
        monkeypatch.setattr(shards, "_digest", None)  # nobody hashes again
        read_ledger(audited)

    def test_files_without_a_checksum_are_read_as_before(self, audited):
        before = [numbers(one.report) for one in read_ledger(audited)]
        for path in (audited / "predictions").glob("*.parquet"):
            path.write_bytes(path.read_bytes().replace(shards._MARK, b"nothing="))
        assert [numbers(one.report) for one in read_ledger(audited)] == before


class TestCards:
    @pytest.mark.parametrize(
        "content",
        [
            b"", b"7", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"data": 3}', b'{"data": {}}',
            b'{"data": {"class_names": 3}, "recipe_name": "x"}',
            b'{"data": {"class_names": ["a"]}, "recipe_name": 3}',
            b'{"data": {"class_names": ["a"]}, "recipe_name": "x", "config": 3}',
            b'{"data": {"class_names": ["a"]}, "recipe_name": "x", "versions": 3}',
            b'{"data": {"class_names": ["a", 3]}, "recipe_name": "x"}',
            b'{"data": {"class_names": []}, "recipe_name": "x"}',
        ],
        ids=lambda content: content[:60].decode(errors="replace"),
    )  # fmt: skip
    def test_a_damaged_card_is_one_line(self, audited, tmp_path, content):
        (audited / "run.json").write_bytes(content)
        page = str(tmp_path / "report.html")
        commands = (["report", str(audited), "--out", page], ["audit", "--from", str(audited)])
        for words in (*commands, ["audit", str(audited)]):
            result = CliRunner().invoke(cli.app, words)
            assert isinstance(result.exception, SystemExit | None), result.exception
            if content == b"{}" and "--from" in words:  # the shards name their classes themselves
                assert result.exit_code == 0
                continue
            assert result.exit_code == 2, (words, result.output)
            assert len(result.stderr.strip().splitlines()) == 1

    @pytest.mark.parametrize(
        "config", [{"eps": "x"}, {"epochs": []}, {"judge_eps": {}}, {"eps": None}]
    )
    def test_a_report_survives_damaged_keys(self, audited, tmp_path, config):
        card = unseal((audited / "run.json").read_bytes()) | {"config": config, "identity": "x"}
        (audited / "run.json").write_text(json.dumps(card))
        page = tmp_path / "report.html"
        result = CliRunner().invoke(cli.app, ["report", str(audited), "--out", str(page)])
        assert isinstance(result.exception, SystemExit | None), result.exception
        assert result.exit_code in (0, 2), result.output

    def test_random_bits_of_a_card(self, run):
        path = run.path / "run.json"
        damages = list(flipped(path.read_bytes(), 11, 80))
        same = lambda one, other: {**one, **other} == one  # noqa: E731
        count = noticed(path, lambda: dict(Run(run.path).about), same, damages)
        assert count >= len(damages) - 3

    def test_random_bits_of_remarks_and_groupings(self, audited):
        from classwise.record.remarks import note_on

        note_on(audited, [{"model_hash": "m", "data_hash": "d", "attack_key": "a"}], "something")
        path = audited / "remarks.json"
        noticed(
            path,
            lambda: _read_remarks(audited),
            dict.__eq__,
            flipped(path.read_bytes(), 13, 60),
        )
        (path,) = (audited / "groups").glob("*.json")
        damages = list(flipped(path.read_bytes(), 17, 60))
        count = noticed(path, lambda: str(kept_groupings(audited)), str.__eq__, damages)
        assert count >= len(damages) - 4  # the checksum's own name may be hit

    def test_a_card_that_was_changed_by_hand_says_how_to_keep_the_change(self, run):
        path = run.path / "run.json"
        path.write_text(path.read_text().replace('"eps": 0.2', '"eps": 0.3'))
        with refused("run.json", "checksum", "changed it yourself"):
            _ = Run(run.path).about
        content = json.loads(path.read_text())
        del content["checksum"]
        path.write_text(json.dumps(content))
        assert Run(run.path).config.eps == 0.3


def test_a_seal_holds_whatever_stands_in_it():
    content = {"a": [1, 2.5, None, True, "ü\ud800"], "b": {3: float("nan"), 20: (1, 2)}, "": {}}
    text = json.dumps(seal(content))
    assert unseal(text)["b"]["20"] == [1, 2]
    with pytest.raises(Damaged):
        unseal(text.replace("2.5", "2.6"))
