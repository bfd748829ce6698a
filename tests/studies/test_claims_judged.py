"""Verdicts on claims, from predictions on disk to words on a page."""

import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from effect_scenes import claim, found_run, made_run, right_of, write

from classwise.studies.artefact import Artefact, Cell
from classwise.studies.effects import Verdict, judge_claims
from classwise.studies.effects_page import effects_artefact, effects_page, sentence
from classwise.studies.found import Found, FoundRun
from classwise.studies.papers.claims import claims

STUDY = SimpleNamespace(title="made up", paper="wei", source="table 1")
LOW, HIGH = (0.3, 0.2, 0.4), (0.5, 0.4, 0.6)


def study(*runs, scale="minutes"):
    return {"made-up": Found(STUDY, scale, tuple(runs), "small images")}


def two_rows(tmp_path, left=HIGH, right=LOW, seeds=3, **how):
    """AT + CFA and AT, seed by seed."""
    return [
        made_run(tmp_path / f"{name}-{seed}", row, seed, rates, **how)
        for name, row, rates in (("cfa", "AT + CFA", left), ("at", "AT", right))
        for seed in range(seeds)
    ]


def judged(found, made=None, **said):
    [one] = judge_claims(found, made, [claim(**said)])
    return one


def test_a_clear_effect_agrees_and_its_opposite_disagrees(tmp_path):
    found = study(*two_rows(tmp_path))
    one = judged(found)
    assert one.verdict == Verdict.AGREES
    assert one.shown.value == pytest.approx(20)
    assert (one.shown.seeds, one.shown.images) == (3, 300)
    assert judged(found, sign="-").verdict == Verdict.DISAGREES
    assert judged(found, measure="worst", sign="+").verdict == Verdict.AGREES
    assert judged(found, measure="class:dog").shown.value == pytest.approx(20)


def test_no_effect_is_undecided_or_within_a_bound(tmp_path):
    found = study(*two_rows(tmp_path, left=LOW))
    assert judged(found).verdict == Verdict.UNDECIDED
    assert judged(found, sign="~", bound="30").verdict == Verdict.AGREES
    assert judged(found, sign="~", bound="1").verdict == Verdict.UNDECIDED
    assert judged(found, sign=">", bound="40").verdict == Verdict.DISAGREES


def test_one_seed_decides_nothing(tmp_path):
    one = judged(study(*two_rows(tmp_path, seeds=1)))
    assert one.verdict == Verdict.UNDECIDED
    assert one.shown.low > 0
    assert "one seed" in sentence(one)


def test_a_changed_row_changes_the_number(tmp_path):
    runs = two_rows(tmp_path)
    before = judged(study(*runs)).shown.value
    folder = tmp_path / "cfa-0"
    shutil.rmtree(folder)
    again = made_run(folder, "AT + CFA", 0, (0.53, 0.4, 0.6))
    after = judged(study(again, *runs[1:])).shown.value
    assert after - before == pytest.approx(100 * 3 / 300 / 3)  # three images of one seed in three


def test_a_run_that_is_missing_leaves_a_hole(tmp_path):
    left, right = np.split(np.array(two_rows(tmp_path), dtype=object), 2)
    gone = FoundRun(right[0].labels, None, "failed: out of memory")
    one = judged(study(*left, gone, *right[1:]))
    assert (one.shown.seeds, one.shown.left_out) == (2, 1)
    none = [FoundRun(run.labels, None, "failed: out of memory") for run in right]
    one = judged(study(*left, *none))
    assert (one.verdict, one.why) == (Verdict.NOT_RUN, "failed: out of memory")
    assert judged({}).verdict == Verdict.NOT_RUN
    assert judged(study(*left)).why == "the study has no row AT"


def test_pairs_must_have_seen_the_same(tmp_path):
    left, right = np.split(np.array(two_rows(tmp_path), dtype=object), 2)
    for number, how in enumerate(({"data": "other"}, {"eps": 4 / 255})):
        base = [made_run(tmp_path / f"{number}-{seed}", "AT", seed, LOW, **how) for seed in (0, 1)]
        why = judged(study(*left, *base)).why
        assert "different" in why, why
    twice = [*right, made_run(tmp_path / "twice", "AT", 0, LOW)]
    assert "several runs fit" in judged(study(*left, *twice)).why


def test_another_attack_stands_for_autoattack_only_where_it_may(tmp_path):
    found = study(*two_rows(tmp_path))
    one = judged(found, condition="autoattack")
    assert one.shown.conditions == ("pgd-20",)
    assert "pgd-20 in place of autoattack" in effects_artefact([one], found).rows[0][5].words
    assert judged(found, condition="autoattack", paper="medi").verdict == Verdict.NOT_RUN


def test_an_average_that_never_began_is_not_replaced_by_live_weights(tmp_path):
    left, right = np.split(np.array(two_rows(tmp_path), dtype=object), 2)
    live = [FoundRun({**run.labels, "recipe": "at+cfa"}, run.run) for run in left]
    assert "never began" in judged(study(*live, *right)).why
    other = []
    for seed in range(3):
        folder = tmp_path / f"share-{seed}"
        write(folder, right_of(HIGH, 100, seed), weights="fawa-last")
        labels = {
            "row": "AT + CFA (gate: share)",
            "recipe": "at+cfa(gate=share)",
            "seed": str(seed),
        }
        other.append(found_run(folder, labels))
    one = judged(study(*live, *right, *other))
    assert one.verdict == Verdict.AGREES
    assert one.shown.words == "AT + CFA (gate: share)"


def test_all_alternatives_must_hold_and_a_star_passes_over_what_is_missing(tmp_path):
    runs = two_rows(tmp_path)
    same = [made_run(tmp_path / f"ema-{seed}", "AT + EMA", seed, HIGH) for seed in range(3)]
    found = study(*runs, *same)
    both = judged(found, right="row=AT|row=AT + EMA")
    assert both.verdict == Verdict.UNDECIDED
    assert len(both.findings) == 2
    assert both.shown.value == pytest.approx(0)
    lost = FoundRun({"row": "FAT", "recipe": "fat", "seed": "0"}, None, "not run yet")
    star = judged(study(*runs, *same, lost), left="row=*!AT", right="row=AT")
    assert star.verdict == Verdict.AGREES
    assert "1 of 3 are missing" in star.why


def test_sums_relative_changes_and_orders(tmp_path):
    found = study(*two_rows(tmp_path))
    left = "row=AT + CFA;measure=class:dog&row=AT;measure=class:cat"
    right = "row=AT + CFA;measure=class:cat&row=AT;measure=class:dog"
    assert judged(found, left=left, right=right).shown.value == pytest.approx(0)
    lower = judged(found, kind="relative", measure="error", sign="-")
    assert lower.shown.value == pytest.approx(100 * (0.5 / 0.7 - 1))
    order = judged(found, kind="order", measure="classes", sign=">", bound="0.5")
    assert order.shown.value == pytest.approx(1)


def test_a_share_is_over_all_corruptions_with_their_severities_pooled(tmp_path):
    names = [f"corruption:{name}-{severity}" for name in ("fog", "snow") for severity in (1, 5)]
    found = study(*two_rows(tmp_path, conditions=names, per_class=40))
    said = {"kind": "share", "condition": "each corruption", "sign": ">", "bound": "50"}
    assert judged(found, **said).shown.value == pytest.approx(100)
    assert judged(found, condition="fog").shown.conditions == tuple(names[:2])
    assert len(judged(found, condition="corruptions").shown.conditions) == 4


def table(*rows):
    return Artefact("figure-3", "Figure 3", ("line", "last", "change"), tuple(rows))


def test_cells_of_artefacts_are_found_by_their_words(tmp_path):
    found = study(*two_rows(tmp_path, seeds=1))
    made = {"made-up": [table(
        (Cell(words="fox, AT"), Cell((0.3, 0.31, 0.29)), Cell((0.05, 0.06, 0.055))),
        (Cell(words="chair, AT"), Cell((0.8, 0.8, 0.81)), Cell((0.01, 0.011, 0.009))),
    )]}  # fmt: skip
    said = {"kind": "cell", "condition": "", "measure": "figure-3: change"}
    one = judged(found, made, left="fox, *", right="chair, *", **said)
    assert one.verdict == Verdict.AGREES
    assert one.shown.value == pytest.approx(4.5)
    alone = judged(found, made, left="fox, AT", right="", **{**said, "sign": "<", "bound": "1"})
    assert alone.verdict == Verdict.DISAGREES
    assert "no artefact" in judged(found, made, left="ox, AT", right="", **said).why


def test_what_follows_from_closed_forms_needs_no_seed():
    found = {"made-up": Found(STUDY, "minutes", ())}
    told = {"holds in all 20": Verdict.AGREES, "fails in 3 of 20": Verdict.DISAGREES}
    for words, verdict in told.items():
        made = {"made-up": [table((Cell(words="Theorem 1"), Cell(words="x"), Cell(words=words)))]}
        said = {"kind": "cell", "measure": "figure-3: change", "condition": "holds in all *"}
        one = judged(found, made, left="Theorem 1, x", right="", sign="<", bound="0.5", **said)
        assert one.verdict == verdict


def test_the_page_has_every_claim_once_and_counts_them():
    text = effects_page(judge_claims({}), {})
    counted = [one for one in claims() if one.kind != "same"]
    assert f"| all | 0 | 0 | 0 | {len(counted)} |" in text
    for one in claims():
        assert text.count(f"({one.id})") == 1, one.id
    assert "†" in text
    assert "repeats the row" in text


def test_a_sentence_says_both_numbers_and_the_scale(tmp_path):
    found = study(*two_rows(tmp_path))
    words = sentence(judged(found, value="4.8", doubtful="an outlier"))
    assert words.startswith("CFA helps: paper +4.8 † (an outlier), ours +20.0 ± ")
    assert words.endswith("(minutes, 3 seeds): agrees")


def test_the_picture_has_ours_beside_the_paper(tmp_path):
    found = study(*two_rows(tmp_path))
    made = effects_artefact([judged(found, value="4.8")], found)
    [panel] = made.figure.panels
    ours, theirs = panel.series
    assert (ours.y[0], theirs.y[0]) == (pytest.approx(20), 4.8)
    assert ours.low[0] < 20 < ours.high[0]
