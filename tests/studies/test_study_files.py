"""Study files: what they may say, and what is refused before anything runs."""

import pytest
from refusals import refused

from classwise.studies.planned import count_runs, plan
from classwise.studies.study import SCALES, load_study, parse_study, study_names

RUNS = '[[runs]]\nrecipe = ["at", "trades"]\n'
TABLE = '[[artefact]]\nkind = "table"\ntitle = "Table 1"\n'


def read(runs=RUNS, rest="", table=TABLE):
    return parse_study(f'title = "mine"\n{runs}\n{rest}\n{table}', "mine", "mine.toml")


def labels(study, scale="smoke", **how):
    return [dict(run.labels) for run in plan(study, scale, **how)]


class TestAxes:
    def test_a_list_is_an_axis_and_the_last_runs_fastest(self):
        study = read(
            RUNS + 'eps = ["2/255", 0.1]\nmodel = "cnn"\nseeds = 2\n[scale.smoke]\nseeds=2'
        )
        found = labels(study)
        assert [(one["recipe"], one["eps"], one["seed"]) for one in found] == [
            (recipe, eps, seed)
            for recipe in ("at", "trades") for eps in ("2/255", "0.1") for seed in "01"
        ]  # fmt: skip
        assert {one["model"] for one in found} == {"cnn"}

    def test_options_of_methods_are_axes_with_and_without_quotes(self):
        for line in ('"trades.beta" = [1, 6]', "trades.beta = [1, 6]"):
            runs = plan(read(f'[[runs]]\nrecipe = "trades"\n{line}'), "smoke")
            assert [run.recipe.canonical["trades"]["beta"] for run in runs] == [1, 6]
            assert [run.labels["trades.beta"] for run in runs] == ["1", "6"]

    def test_rows_are_those_of_the_papers_tables(self):
        found = labels(read('[[runs]]\nrows = "wei 3"'))
        assert [one["row"] for one in found] == ["AT + FAWA", "TRADES + FAWA", "FAT + FAWA"]
        one = labels(read('[[runs]]\nrows = "wei 1: AT + CFA"'))
        assert [(r["recipe"], r["data"], r["model"]) for r in one] == [
            ("at+cfa", "cifar10", "preactresnet18")
        ]

    def test_data_chooses_rows_or_replaces_theirs(self):
        runs = '[[runs]]\nrows = "medi 1: FAIR-TAT"\n'
        assert [one["data"] for one in labels(read(runs))] == ["cifar10", "cifar100"]
        assert [one["data"] for one in labels(read(runs + 'data = "cifar100"'))] == ["cifar100"]
        assert [one["data"] for one in labels(read(runs + 'data = "mnist"'))] == ["mnist"]

    def test_variants_are_told_apart_where_they_are_wanted(self):
        runs = '[[runs]]\nrows = "medi 1: TRADES"\ndata = "cifar10"\n'
        assert len(labels(read(runs))) == 1
        both = [one["row"] for one in labels(read(runs + "variants = true"))]
        assert both == ["TRADES", "TRADES (beta 6 (code))"]

    def test_recipes_may_be_called_as_a_table_calls_them(self):
        found = labels(read(RUNS + 'row = ["one", "two"]'))
        assert [one["row"] for one in found] == ["one", "two"]
        with refused("3 rows for 2 recipes"):
            read(RUNS + 'row = ["a", "b", "c"]')

    def test_a_scale_may_have_other_values_seeds_and_blocks(self):
        runs = RUNS + 'eps = ["1/255", "2/255", "4/255"]\nseeds = 5\n'
        runs += '[[runs]]\nrecipe = "mart"\nscales = ["paper"]\n'
        own = '[scale.minutes]\nseeds = 2\naxes.eps = ["2/255"]\n'
        study = read(runs, own)
        assert [len(plan(study, scale)) for scale in SCALES] == [6, 4, 18, 31]
        assert [count_runs(study, scale) for scale in SCALES] == [6, 4, 18, 31]
        assert len(plan(study, "minutes", seeds=1)) == 2


class TestRefused:
    @pytest.mark.parametrize(
        ("runs", "words"),
        [
            ('[[runs]]\nrecipe = "tradse"', "unknown method 'tradse'; did you mean 'trades'"),
            ('[[runs]]\nrecipe = "at+trades"', "at and trades both set"),
            ('[[runs]]\nrecipe = "at(stepz=3)"', "unknown option of at 'stepz'; did you mean"),
            ('[[runs]]\nrecipe = "at+ccm"\n"cfa.lam" = 1', "with a method of at+ccm"),
            (RUNS + "epoch = 3", "unknown option 'epoch'; did you mean 'epochs'"),
            (RUNS + "epochs = -3", "epochs=-3"),
            (RUNS + "eps = 8", "did you mean 8/255"),
            (RUNS + "eps = []", "eps is []"),
            (RUNS + "eps = [0.1, 0.1]", "eps has a value twice"),
            (RUNS + "seed = 3", "write seeds instead"),
            (RUNS + 'watch = "test:clean"', "write [watch] instead"),
            (RUNS + "seeds = 0", "seeds is 0"),
            (RUNS + 'seeds = "3"', "seeds is '3'"),
            (RUNS + 'model = "resnet10"', "unknown model 'resnet10'; did you mean"),
            (RUNS + 'model = "os:system"', "os:system is code of its own"),
            (RUNS + 'data = "cifra10"', "unknown data set 'cifra10'; did you mean 'cifar10'"),
            (RUNS + 'data = "hf:mnist"', "may come from the network"),
            (RUNS + 'preset = "papr"', "unknown preset 'papr'; did you mean 'paper'"),
            (RUNS + 'scales = ["minute"]', "unknown scale 'minute'; did you mean 'minutes'"),
            ('[[runs]]\nrows = "wie 1"', "unknown paper of a row 'wie'; did you mean 'wei'"),
            ('[[runs]]\nrows = "wei 9"', "unknown table of wei '9'"),
            ('[[runs]]\nrows = "wei 1: AT+CFA"', "did you mean 'AT + CFA'"),
            ('[[runs]]\nrows = "wei 1"\npreset = "paper"', "rows of a table have their own"),
            ('[[runs]]\nrows = "wei 1"\nrecipe = "at"', "one of them"),
            ("[[runs]]\neps = 0.1", "one of them"),
            ('[[runs]]\nrecipe = "at+os:Boost"', "add --import os"),
        ],
    )
    def test_blocks(self, runs, words):
        with refused(words):
            plan(read(runs), "paper")

    @pytest.mark.parametrize(
        ("rest", "words"),
        [
            ('titel = "x"', "mine.toml"),
            ('[audit]\natacks = ["clean"]', "'atacks'; did you mean 'attacks'"),
            ('[audit]\nattacks = ["pgd20"]', "pgd20"),
            ('[audit]\nattacks = []', "attacks"),
            ('[audit]\nattacks = ["os:system"]', "os:system"),
            ('[audit]\ncorruptions = "frog"', "frog"),
            ("[audit]\nlimit = -1", "limit = -1"),
            ('[watch]\nlooks = "test"', "write SPLIT:ATTACK"),
            ("[watch]\nevery = 0", "looks"),
            ("[scale.minuts]\nseeds = 1", "unknown scale 'minuts'; did you mean 'minutes'"),
            ("[scale.smoke]\nseed = 1", "'seed'; did you mean 'seeds'"),
            ("[scale.smoke]\nsettings.epoch = 1", "'epoch'; did you mean 'epochs'"),
            ("[scale.smoke]\naudit.limitt = 1", "'limitt'; did you mean 'limit'"),
        ],
    )  # fmt: skip
    def test_other_tables(self, rest, words):
        with refused(words):
            plan(read(RUNS, rest), "smoke")

    @pytest.mark.parametrize(
        ("table", "words"),
        [
            ("", "there is no [[artefact]]"),
            ('[[artefact]]\nkind = "tabel"\ntitle = "x"', "did you mean 'table'"),
            ('[[artefact]]\ntitle = "x"', "needs a kind"),
            (TABLE + 'measurs = ["worst"]', "'measurs'; did you mean 'measures'"),
            (TABLE + TABLE, "two artefacts would be the file table-1"),
            (TABLE + 'name = "../../elsewhere"', "is no plain name for a file"),
            (TABLE + 'name = "index"', "two artefacts would be the file index"),
        ],
    )
    def test_artefacts(self, table, words):
        with refused(words):
            read(table=table)

    def test_a_grid_beyond_all_bounds_is_not_even_counted_out(self):
        axes = "\n".join(f"{name} = [{', '.join(str(k / 1000) for k in range(1, 200))}]"
                         for name in ("eps", "lr", "weight_decay"))  # fmt: skip
        with refused("5000 are the most"):
            plan(read(RUNS + axes), "smoke")

    def test_a_name_that_is_none(self):
        with refused("unknown study 'wei-table'", "FILE.toml"):
            load_study("wei-table")
        with refused("cannot read the study nowhere.toml"):
            load_study("nowhere.toml")


@pytest.mark.parametrize("name", study_names())
def test_every_study_that_is_built_in_resolves_at_its_smallest_scale(name):
    study = load_study(name)
    assert study.title
    assert study.source
    for run in plan(study, "smoke"):
        assert "madeup" in (run.maker or run).config.data
