"""Damaged states, weights and histories: noticed or harmless every time, and put right."""

import json
import shutil

import pytest
import torch
from boundaries import files
from damages import EPOCHS, again, cut_tails, flipped, noticed, same_tensors
from refusals import refused
from typer.testing import CliRunner

from classwise import cli
from classwise.record.tensors import read_tensors, write_tensors


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
        with refused("history.jsonl is damaged", "resume the training"):
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
