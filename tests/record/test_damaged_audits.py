"""Damaged shards and cards: named, set aside, and judged again."""

import json
import re

import numpy as np
import pytest
from damages import cut_tails, flipped, judge, noticed, numbers
from refusals import refused
from typer.testing import CliRunner

from classwise import cli
from classwise.judging.audits import read_ledger
from classwise.judging.group_files import groupings_in
from classwise.record import shard_files
from classwise.record.card import read_card
from classwise.record.remarks import _read_remarks
from classwise.sealed import Damaged, seal, unseal
from classwise.training.run import Run


class TestShards:
    def test_every_flipped_bit_and_every_lost_tail_is_noticed(self, audited):
        for path in sorted((audited / "predictions").glob("*.parquet")):
            good = path.read_bytes()
            damages = [*flipped(good, 1, 40), *cut_tails(good, 2, 12)]

            def read():
                return [numbers(one.report) for one in read_ledger(audited)]

            count = noticed(path, read, lambda one, other: one == other, damages)
            assert count >= len(damages) - 1

    @pytest.mark.parametrize("how", ["flip", "tail", "html", "notes"])
    def test_it_is_set_aside_and_its_samples_are_judged_again(self, audited, how, capfd):
        before = numbers(judge(audited))
        path = next((audited / "predictions").glob("*fgsm*.parquet"))
        good = path.read_bytes()
        bad = {
            "flip": next(flipped(good, 3, 1)),
            "tail": good[:-50],
            "html": b"<html>",
            "notes": good.replace(shard_files._MARK, b"nothing=").replace(b"recipe", b"\xffecipe"),
        }[how]
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
        ledger = Ledger.at(audited, read_card(audited))
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

    def test_damage_that_ends_the_engine_is_named_and_whole_files_are_still_read(self, audited):
        before = [numbers(one.report) for one in read_ledger(audited)]
        paths = sorted((audited / "predictions").glob("*.parquet"))
        for path in paths:  # no checksums: the engine sees the damage
            path.write_bytes(path.read_bytes().replace(shard_files._MARK, b"nothing="))
        good = paths[0].read_bytes()
        number = rb"\x16[\x80-\xff]*[\x00-\x7f]"  # of a column: rows, bytes, bytes compressed
        found = re.search(rb"\x18\x03run\x15." + number + number + rb"\x16", good, re.DOTALL)
        place = found.end()
        paths[0].write_bytes(
            good[:place] + bytes([good[place] | 1]) + good[place + 1 :]
        )  # negative
        with refused(paths[0].name, "integer cast", "move it away"):
            read_ledger(audited)
        assert shard_files.damaged_files(audited / "predictions") == []
        paths[0].write_bytes(good)
        assert [numbers(one.report) for one in read_ledger(audited)] == before

    def test_a_file_is_verified_once(self, audited, monkeypatch):
        read_ledger(audited)
        monkeypatch.setattr(shard_files, "_checksum", None)  # nobody hashes again
        read_ledger(audited)

    def test_files_without_a_checksum_are_read_as_before(self, audited):
        before = [numbers(one.report) for one in read_ledger(audited)]
        for path in (audited / "predictions").glob("*.parquet"):
            path.write_bytes(path.read_bytes().replace(shard_files._MARK, b"nothing="))
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
        count = noticed(path, lambda: str(groupings_in(audited)), str.__eq__, damages)
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
    content = {"a": [1, 2.5, None, True, "ü"], "b": {3: float("nan"), 20: (1, 2)}, "": {}}
    text = json.dumps(seal(content))
    assert unseal(text)["b"]["20"] == [1, 2]
    with pytest.raises(Damaged):
        unseal(text.replace("2.5", "2.6"))
