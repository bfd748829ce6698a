"""What is read back from a ledger, and what models and data are known by."""

from dataclasses import replace

import duckdb
import numpy as np
import pytest
import torch
from asked import attack_key, write_predictions
from ledgers import ABOUT, Counting, complete, data, missing, stamp, verdicts
from refusals import refused
from torch import nn

from classwise.data.view import data_hash
from classwise.judging.audits import read_ledger
from classwise.models.subject import model_hash
from classwise.record.card import write_card
from classwise.record.ledger import Ledger


class TestReading:
    def test_a_bare_folder_of_shards_gives_its_table_without_model_or_run(self, tmp_path):
        ledger = Ledger(tmp_path, ABOUT)
        complete(ledger, stamp(), data(), Counting())
        found = ledger.read(stamp())
        (audited,) = read_ledger(tmp_path)
        assert audited.recipe == "made up"
        for k, name in enumerate("abc"):
            expected = found.correct[found.label == k].mean()
            assert audited.report["pgd-2"].by_class[name] == pytest.approx(expected)

    def test_attacks_weights_and_splits_can_be_chosen(self, tmp_path):
        ledger = Ledger(tmp_path, ABOUT)
        for eps in (0.1, 0.2):
            found = replace(verdicts(range(9)), radius=np.full(9, eps))
            ledger.append(found, stamp(eps=eps))
        ledger.append(verdicts(range(6), condition="clean"), stamp(attack="clean"))
        ledger.append(verdicts(range(3)), stamp("best"))
        assert len(read_ledger(tmp_path)) == 2
        (audited,) = read_ledger(tmp_path, attacks=["pgd-2"], weights="last")
        assert list(audited.report) == ["pgd-2 eps=0.1 seed=0", "pgd-2 eps=0.2 seed=0"]
        for words in ({"weights": "bets"}, {"split": "tset"}, {"attacks": ["pgd-3"]}):
            with refused("unknown", str(tmp_path)):
                read_ledger(tmp_path, **words)

    def test_norms_and_verdicts_of_one_attack_are_all_shown(self, tmp_path):
        ledger = Ledger(tmp_path, ABOUT)
        for norm, verdict in (("Linf", "last"), ("Linf", "any"), ("L2", "last")):
            key = attack_key("pgd-2", 0.1, norm, 0, verdict)
            found = verdicts(range(3), norm=norm, verdict=verdict)
            ledger.append(found, replace(stamp(), attack_key=key))
        (audited,) = read_ledger(tmp_path)
        assert len(audited.report) == 3
        assert audited.report.about["norm"] == "L2, Linf"

    def test_changed_weights_are_not_mixed_with_the_old_ones(self, tmp_path):
        ledger = Ledger(tmp_path, ABOUT)
        ledger.append(verdicts(range(6)), stamp(model="aaaaaaaa1"))
        ledger.append(verdicts(range(6), predicted=[0] * 6), stamp(model="bbbbbbbb2"))
        audits = read_ledger(tmp_path)
        assert [one.weights for one in audits] == ["last@aaaaaaaa", "last@bbbbbbbb"]
        assert [one.report["pgd-2"].overall for one in audits] == [1.0, pytest.approx(1 / 3)]

    def test_radii_may_differ_from_sample_to_sample(self, tmp_path):
        found = replace(verdicts(range(6)), radius=np.linspace(0.1, 0.2, 6))
        Ledger(tmp_path, ABOUT).append(found, stamp(eps=tuple(found.radius)))
        (audited,) = read_ledger(tmp_path)
        assert list(audited.report) == ["pgd-2"]
        assert audited.report["pgd-2"].counts.sizes.sum() == 6

    def test_a_ledger_of_another_version_is_refused_by_name(self, tmp_path):
        path = Ledger(tmp_path, ABOUT).append(verdicts(range(3)), stamp())
        other = tmp_path / "other.parquet"
        duckdb.execute(
            f"COPY (FROM read_parquet('{path}')) TO '{other}' "
            "(FORMAT parquet, KV_METADATA {classwise_ledger: '7'})"
        )
        with refused("other.parquet", "version 7", "reads version 1"):
            read_ledger(tmp_path)
        with refused("other.parquet", "version 7"):
            missing(Ledger(tmp_path), stamp(), np.arange(3))
        duckdb.execute(f"COPY (SELECT 1 AS x) TO '{other}' (FORMAT parquet)")
        with refused("other.parquet", "no ledger version"):
            read_ledger(tmp_path)

    def test_folders_that_hold_nothing(self, tmp_path):
        with refused("not a folder"):
            read_ledger(tmp_path / "gone")
        with refused("holds no audit"):
            read_ledger(tmp_path)
        write_card(tmp_path, "at", {"class_names": ["a"]})
        with refused("no audit yet"):
            read_ledger(tmp_path)
        write_predictions(tmp_path, verdicts(range(3)), run="r", weights="w", split="s")
        with refused("class number 2", "1 classes"):
            read_ledger(tmp_path)


def test_two_models_with_the_same_verdicts_are_both_kept(tmp_path):
    ledger = Ledger(tmp_path, ABOUT)
    for owner in ({"model": "m1"}, {"model": "m2"}, {"data": "d2"}, {"seed": 1}):
        ledger.append(verdicts(range(6)), stamp(**owner))
        ledger.append(verdicts(range(6)), stamp(**owner))  # the same again is the same file
    assert len(list(tmp_path.glob("*.parquet"))) == 4
    for owner in ({"model": "m1"}, {"model": "m2"}, {"data": "d2"}, {"seed": 1}):
        assert len(missing(ledger, stamp(**owner), np.arange(6))) == 0


class TestFingerprints:
    def test_a_model_is_known_by_tensors_structure_and_settings(self):
        torch.manual_seed(0)
        first = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU())
        same = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU())
        same.load_state_dict(first.state_dict())
        assert model_hash(first) == model_hash(same.train())
        hashes = {model_hash(first)}
        with torch.no_grad():
            same[0].bias[0] += 1e-6
        hashes.add(model_hash(same))
        same.load_state_dict(first.state_dict())
        same[1].running_mean += 1
        hashes.add(model_hash(same))
        same.load_state_dict(first.state_dict())
        same[0].padding = (1, 1)
        hashes.add(model_hash(same))
        other = nn.Sequential(*first[:2], nn.Tanh())
        hashes.add(model_hash(other))
        hashes.add(model_hash(first, "with a note"))
        hashes.add(model_hash(first.bfloat16()))
        assert len(hashes) == 7

    def test_a_function_needs_a_name(self):
        with refused("function", "name"):
            model_hash(lambda x: x)
        assert model_hash(lambda x: x, "v1") != model_hash(lambda x: x, "v2")

    def test_data_are_known_by_pixels_and_labels(self):
        images, labels = torch.rand(3, 1, 2, 2), torch.tensor([0, 1, 1])
        other = images.clone()
        other[2, 0, 1, 1] += 1e-3
        found = {data_hash(images, labels), data_hash(other, labels), data_hash(images, 1 - labels)}
        assert len(found) == 3

    def test_clean_images_are_one_condition_whatever_the_radius(self):
        facts = [(0.1, "Linf", 0, "last"), (0.2, "L2", 3, "any")]
        assert len({attack_key("clean", *one) for one in facts}) == 1
        assert len({attack_key("fgsm", *one) for one in facts}) == 2
