"""Hand-made mutants of the critical rules: what must never change unnoticed, and who notices.

`make mutants` (run_mutants.py) applies each to a copy of the package and runs the tests it names.
Where a rule is rewritten, its mutants are rewritten with it: text that is not found is a failure.
"""

from mutant import Mutant
from mutants_around import AROUND
from mutants_promises import PROMISES
from mutants_studies import STUDIES

STORE = ("data/test_store.py",)
CACHE = ("data/test_cache.py",)
QUESTION = ("auditing/test_question_bounds.py",)
EDGES = ("test_draws_edges.py",)
SURVIVORS = ("attacks/search/test_survivors.py",)
PLAIN = ("training/test_plain_and_quick.py",)
TALLY = ("training/test_no_waiting.py",)
LEAVING = ("attacks/test_leaving.py",)
FOLLOWING = ("models/test_following_twin.py",)
INNER = ("attacks/test_inner.py",)
TAIL = ("judging/test_tail.py",)
BROKEN_BY = ("record/test_broken_by.py",)
CONFIRM = ("attacks/search/test_confirm.py",)
KEY = ("attacks/test_condition_key.py",)
STATE = ("training/test_state_kept.py",)
EPOCH = ("training/test_epoch_draws.py",)
BALL = ("attacks/test_projection_of_balls.py",)
FRL = ("methods/test_methods_frl.py::TestMultipliers",)
WAT = ("methods/test_methods_wat.py::test_running_weights_equal_a_straight_loop",)
CFA = ("methods/test_methods_cfa.py::TestCCR", "methods/test_policies.py::TestCalibratedMargin")
FAST = ("methods/test_methods_fast.py::test_the_guard_equals_a_straight_loop",)
FINER = ("methods/test_methods_fast.py::TestFiner",)
STEPS = ("methods/test_methods_fast.py::TestSchedule",)
FREE = ("methods/test_methods_free.py::test_steps_equal_a_straight_transcription",)
ATTA = ("methods/test_methods_atta.py::test_steps_equal_a_straight_transcription",)
AWP = (
    "methods/test_methods_awp.py::test_a_step_equals_a_straight_transcription",
    "methods/test_methods_awp.py::test_weights_are_back_bit_for_bit_before_the_update",
)
DAFA = ("methods/test_methods_dafa.py::TestWeights",)
PAIRED = ("statistics/test_paired.py::TestMcNemar",)
INTERVALS = tuple(
    f"statistics/test_intervals.py::{test}"
    for test in (
        "test_intervals_agree_with_scipy",
        "test_simultaneous_is_exact_at_sidaks_level_over_the_classes_with_samples",
        "test_the_worst_interval_takes_the_least_of_both_ends",
    )
)


_QUESTION = "auditing/question.py"
_APGD = "attacks/search/apgd.py"
_FAB = "attacks/search/fab.py"
_SUITE = "attacks/search/suite.py"
_BALL = "attacks/ball.py"
_FRL = "methods/xu2021_frl.py"
_WAT = "methods/li2023_wat.py"
_CFA = "methods/wei2023_cfa.py"
_AWP = "methods/wu2020_awp.py"
_FAST = "methods/wong2020_fast.py"
_FREE = "methods/shafahi2019_free.py"
_ATTA = "methods/zheng2020_atta.py"
_DAFA = "methods/lee2024_dafa.py"

# fmt: off
MUTANTS = (
    # --- a question asked of an audit
    Mutant(_QUESTION, "sure + np.log(count)", "sure", QUESTION,
           "a wrong no with chance K·α"),
    Mutant(_QUESTION, "count = np.maximum(present.sum(-1, keepdims=True), 1)\n        needed",
           "count = self.sizes.shape[-1]\n        needed", QUESTION,
           "classes without images cost evidence"),
    Mutant(_QUESTION, "self.bar * self.sizes - 1e-9", "self.bar * self.sizes", QUESTION,
           "7 of 100 do not meet a bar of 7 %"),
    Mutant(_QUESTION, "meets >= sure)", "meets >= sure + np.log(count))", QUESTION,
           "a yes takes more images than it needs"),
    Mutant("statistics/evidence.py", "np.log(np.maximum(chosen.sum(-1), 1))", "0",
           ("statistics/test_evidence.py::TestEvidence",), "a mixture that is no mean: no bound"),
    # --- random draws
    Mutant("draws.py", "both = (self._hash(index, 2 * size).double() + 0.5) * 2.0**-_BITS\n"
           "        radius", "both = self._hash(index, 2 * size).double() * 2.0**-_BITS\n"
           "        radius", EDGES, "one normal draw in 2^24 is infinite"),
    Mutant("draws.py", "both = (self._hash(index, 2 * size).double() + 0.5) * 2.0**-_BITS\n"
           "        log", "both = self._hash(index, 2 * size).double() * 2.0**-_BITS\n"
           "        log", EDGES, "one beta draw in 2^24 is 0"),
    Mutant("draws.py", "/{self.epoch}\"", "\"", ("test_draws.py", *INNER),
           "every epoch draws the same noise"),
    Mutant("draws.py", "f\"{self.seed}/", "f\"", ("test_draws.py", *INNER),
           "every seed draws the same noise"),
    Mutant("draws.py", "_mix_(index.long() * _signed(_GOLDEN) + _signed(stream))",
           "_mix_(torch.arange(len(index)) * _signed(_GOLDEN) + _signed(stream))",
           ("test_draws.py::test_every_batch_size_and_order_sees_the_same_draws",),
           "a draw depends on the company in the batch"),
    # --- APGD
    Mutant(_APGD, "state.best_height <= state.mark", "state.best_height < state.mark", SURVIVORS,
           "a step that finds nothing better stays as it is"),
    Mutant(_APGD, "state.rises < _ENOUGH * window", "state.rises <= _ENOUGH * window", SURVIVORS,
           "three rises in four are too few"),
    Mutant(_APGD, "state.step / 2", "state.step", SURVIVORS, "the step never gets smaller"),
    Mutant(_APGD, "state.mark = torch.where(here, state.best_height, state.mark)", "pass",
           SURVIVORS, "the best height of the first checkpoint counts for ever"),
    Mutant(_APGD, "(height > state.height) & ~first", "height > state.height", SURVIVORS,
           "looking at the start counts as a rise"),
    Mutant(_APGD, "state.rises = state.rises.masked_fill(here, 0)", "pass", SURVIVORS,
           "rises of an earlier window count again"),
    Mutant(_APGD, "state.height = torch.where(halve, state.best_height, state.height)", "pass",
           SURVIVORS, "after going back, heights are compared with the wrong point"),
    Mutant(_APGD, "state.slope = torch.where(per_image(halve), state.best_slope, state.slope)",
           "pass", SURVIVORS, "it leaves the best point in the direction of another"),
    Mutant(_APGD, "state.halved = torch.where(here, halve, state.halved)", "pass", SURVIVORS,
           "it is forgotten that the step was halved"),
    Mutant(_APGD, "torch.where(state.clock == 1, 1.0, _MOMENTUM)",
           "torch.where(state.clock == 0, 1.0, _MOMENTUM)", SURVIVORS,
           "the first step is a shorter one"),
    # --- FAB
    Mutant(_FAB, ".masked_fill_(state.wrong, _BACK)", "", SURVIVORS, "it never steps back"),
    Mutant(_FAB, ".clamp(max=_PULL)", "", SURVIVORS, "it is drawn to the image too much"),
    Mutant(_FAB, "moved - height", "-height", SURVIVORS, "the plane seen from the image is off"),
    # --- a suite, and what a row says
    Mutant(_SUITE, "found.fallen[down[unsure]] = False", "pass", CONFIRM,
           "what the model gets right counts as broken"),
    Mutant(_SUITE, "found.called[down] = logits.argmax(1)", "pass", CONFIRM,
           "rows name a class that the model never said"),
    Mutant("attacks/search/engine.py", "(gap > rounding) |", "(gap > 0) |", CONFIRM,
           "rounding breaks samples"),
    Mutant(_SUITE, "(\"clean\", *(search.name for search in self.searches))",
           "(\"clean\", *(search.name for search in reversed(self.searches)))", BROKEN_BY,
           "rows blame the wrong attack"),
    Mutant(_SUITE, "self.fell_to[fallen] = number", "self.fell_to[fallen] = 1", BROKEN_BY,
           "rows blame the first attack for all"),
    Mutant("record/rows.py", "names[self.judged.fell_to.cpu().numpy() + 1]",
           "names[np.minimum(self.judged.fell_to.cpu().numpy() + 1, 1)]", BROKEN_BY,
           "rows say `clean` of all that fell"),
    Mutant("attacks/condition.py", "self.norm, self.seed, self.verdict]",
           "self.norm, self.verdict]", KEY, "another seed is answered from the ledger"),
    Mutant("attacks/condition.py", "radius, self.norm,", "radius,", KEY,
           "L2 is answered with Linf"),
    Mutant("attacks/condition.py", "[self.attack.identity, radius,", "[self.attack.identity,",
           KEY, "a larger radius is answered with a smaller one"),
    Mutant("record/ledger.py", "[\"model_hash\", \"data_hash\",", "[\"data_hash\",",
           ("record/test_ledger.py::TestCompletion::"
            "test_another_model_data_or_attack_is_another_question",),
           "another model is answered from the ledger"),
    # --- balls
    Mutant(_BALL, "inside = torch.minimum(torch.maximum(moved, images - reach), images + reach)",
           "inside = torch.maximum(moved, images - reach)", BALL, "attacks leave the Linf ball"),
    Mutant(_BALL, "return inside.clamp_(0, 1)", "return inside", BALL,
           "attacked images are no images"),
    Mutant(_BALL, "clamp(min=1e-12)).clamp(max=1))", "clamp(min=1e-12)))", BALL,
           "small L2 offsets are blown up to the radius"),
    Mutant(_BALL, "(images + reach).clamp_(max=1)", "images + reach", BALL,
           "searches leave [0, 1]"),
    # --- the attack inside training
    Mutant("attacks/inner.py", "with torch.no_grad():\n            clean", "if True:\n"
           "            clean", INNER, "the attack keeps a graph of the clean forward"),
    Mutant("attacks/inner.py", "near.clamp_(0, 1) if start == \"clipped gaussian\" else near",
           "near", INNER, "BAT's attack starts outside of the images"),
    Mutant("attacks/inner.py", "near.clamp_(0, 1) if start == \"clipped gaussian\" else near",
           "near.clamp_(0, 1)", INNER, "TRADES' first forward is not the released one"),
    Mutant("attacks/pgd.py", "jitter(number, going.rows)", "jitter(0, going.rows)", INNER,
           "every update has the same noise"),
    Mutant("attacks/pgd.py", "jitter(number, going.rows)", "jitter(number, None)[: len(moved)]",
           LEAVING, "noise goes to whoever stands there now"),
    Mutant("attacks/pgd.py", "if alone:", "if True:", LEAVING,
           "in train mode a smaller batch changes BatchNorm"),
    Mutant("models/twin.py", "if called[before.target] == 1:", "if True:", FOLLOWING,
           "a convolution is folded into one of its two norms"),
    Mutant("models/twin.py", "elif self.same:", "elif False:", PLAIN,
           "the twin keeps the weights of the epoch's first batch"),
    Mutant("attacks/ball.py", "self.low[keep], self.high[keep]",
           "self.low[: int(keep.sum())], self.high[: int(keep.sum())]", LEAVING,
           "samples that go on are held in the balls of others"),
    Mutant("training/tally.py", "if not math.isfinite(loss):", "if math.isnan(loss):", TALLY,
           "an infinite loss goes on"),
    Mutant("attacks/pgd.py", "return ball.project(gone.among(going), images, radius)",
           "return gone.among(going)", ("attacks/test_ball.py::TestStaysInside",),
           "a start outside of the ball leaves it"),
    # --- tails and intervals
    Mutant("judging/rates.py", "round(share * len(present))", "int(share * len(present))", TAIL,
           "the worst 10 % of 19 classes are one class"),
    Mutant("judging/rates.py", "round(share * len(present))", "round(share * len(self.rates))",
           TAIL, "classes without samples lengthen the tail"),
    Mutant("judging/rates.py", "max(1, round(", "max(0, round(", TAIL, "a tail of no class"),
    Mutant("classes/counts.py", "round(share * len(seen))", "int(share * len(seen))", TAIL,
           "a gate looks at fewer classes than the report"),
    Mutant("statistics/paired.py", "np.maximum.accumulate(p[order] * left)", "p[order] * left",
           PAIRED, "Holm's p-values fall again"),
    Mutant("statistics/paired.py", "(~np.isnan(p)).sum() - np.arange(len(p))",
           "len(p) - np.arange(len(p))", PAIRED, "classes without images cost power"),
    Mutant("statistics/intervals.py", "tail = np.float64((1 - level) / 2)",
           "tail = np.float64(1 - level)", INTERVALS, "exact intervals cover 90 %, not 95 %"),
    Mutant("statistics/intervals.py", "-np.expm1(np.log(level) / count) / 2",
           "(1 - level) / 2 + 0 * count", INTERVALS, "intervals of all classes at once are not"),
    Mutant("statistics/intervals.py", "np.nanmin(_upper(h, n, high_tail), axis=-1)",
           "np.nanmax(_upper(h, n, high_tail), axis=-1)", INTERVALS,
           "the worst class may be as good as the best"),
    # --- training
    Mutant("training/state.py", "tensors |= with_prefix(f\"regulariser.{name}\", values)", "pass",
           STATE, "after a resume a regulariser has no memory"),
    Mutant("training/state.py", "{name: on_device(f\"regulariser.{name}\") for name in "
           "start.regularisers}", "start.regularisers", STATE,
           "after a resume a regulariser begins anew"),
    Mutant("training/loop.py", "config.seed * 1_000_003 + state.epoch", "config.seed * 1_000_003",
           EPOCH, "dropout is the same in every epoch"),
    Mutant("training/loop.py", "config.seed * 1_000_003 + state.epoch", "state.epoch", EPOCH,
           "dropout is the same for every seed"),
    Mutant("training/loop.py", "Moment(self.config.seed, epoch, self.config.epochs)",
           "Moment(self.config.seed, 0, self.config.epochs)", EPOCH,
           "attacks and augmentation draw the same in every epoch"),
    Mutant("methods/sun2023_bat.py", "(\"lastclean\", \"robust\", \"clean\")",
           "(\"clean\", \"robust\", \"lastclean\")", ("methods/test_bat_order.py",),
           "BatchNorm's statistics are not those of the released code"),
    # --- update rules of methods
    Mutant(_FRL, "2 * rate * (boundary - self.slack)", "rate * (boundary - self.slack)", FRL,
           "FRL's boundary weights move at half their rate"),
    Mutant(_FRL, "cut * (bound / cut.sum().clamp(min=bound))", "cut", FRL,
           "FRL's multipliers grow without bound"),
    Mutant(_FRL, "(2 * after).exp()", "after.exp()", FRL, "FRL's margins grow too slowly"),
    Mutant(_FRL, "1 + len(multipliers) * multipliers - multipliers.sum()",
           "1 + len(multipliers) * multipliers", FRL, "FRL's weights do not add up to K"),
    Mutant(_WAT, "self.cost + fresh", "fresh", WAT, "WAT forgets earlier epochs"),
    Mutant(_WAT, "expert[:-1] + expert[-1]", "expert[:-1]", WAT, "WAT has no average expert"),
    Mutant(_CFA, "return replace(settings, beta=settings.beta * scale.to(settings.beta)), self",
           "return replace(settings, beta=scale.to(settings.beta)), self", CFA,
           "CCR's β is not a multiple of the base's"),
    Mutant(_CFA, "margin=settings.margin * scale.to(settings.margin)",
           "margin=settings.margin * scale.flip(0).to(settings.margin)", CFA,
           "CCM gives every class the margin of another"),
    Mutant(_FAST, "& (easy > self.then - self.drop / 2)", "", FAST,
           "the guard cries wolf whenever a class is unlucky"),
    Mutant(_FAST, "(lost > sure) & ", "", FAST, "three images of a class raise an alarm"),
    Mutant(_FAST, "then=torch.where(better, easy, self.then)", "then=easy", FAST,
           "FGSM is compared with the epoch before, and a slow fall goes unnoticed"),
    Mutant("attacks/inner.py", "torch.where(finer > 1, 2 * step / finer, step)", "step", FINER,
           "a class that fell is attacked with steps longer than its ball"),
    Mutant("stages.py", "if epoch_of(when, epochs) <= epoch][-1]",
           "if epoch_of(when, epochs) <= epoch][0]", STEPS, "a schedule never moves on"),
    Mutant(_FREE, "past = memory.get(BATCH, images[:0])[: len(images)].to(images)",
           "past = images[:0]", FREE, "every batch begins without a perturbation"),
    Mutant(_FREE, "torch.cat([moved, beyond.to(moved)])", "moved", FREE,
           "a short batch makes the next one begin anew"),
    Mutant(_ATTA, "offsets[places[0].flatten()] = torch.nan", "pass", ATTA,
           "after a reset the border still has old perturbations"),
    Mutant(_ATTA, "visit.moment.epoch % self.reset == 0", "visit.moment.epoch == 0", ATTA,
           "perturbations are never forgotten"),
    Mutant("data/store.py", "return index if self.rows is None else self.rows[index]",
           "return index",
           STORE, "a subset of a subset would be other images"),
    Mutant("data/store.py", "rows[where] - begin, where", "rows[where], where",
           STORE, "of data in two files the second would be misread"),
    Mutant("data/mending.py", "if zlib.crc32(images[place].data) != self.sums[rows[place]]:",
           "if False:",
           CACHE, "a damaged image of the cache would be trained on"),
    Mutant("data/cache.py", 'facts = f"{found.st_size} {found.st_mtime_ns}"',
           'facts = f"{found.st_size}"',
           CACHE, "a picture that changed would stay what it was"),
    Mutant("data/augment.py", "torch.where(draws[:, 2:] < 0.5, columns.flip(1), columns)\n"
           "        return rows", "torch.where(draws[:, 2:] < 0.5, columns, columns)\n"
           "        return rows", ATTA, "no image is mirrored"),
    Mutant(_AWP, "size * weight.norm() / length", "size / length", AWP,
           "AWP moves all layers by the same length"),
    Mutant(_AWP, "weight.copy_(old)", "pass", AWP, "AWP leaves the weights perturbed"),
    Mutant(_DAFA, "own[:, None] < own[None, :]", "own[:, None] > own[None, :]", DAFA,
           "DAFA favours the easy classes"),
    Mutant(_DAFA, "loss = mean.T * own[:, None]", "loss = mean * own[:, None]", DAFA,
           "what a class gains, no class loses"),
    *AROUND,
    *PROMISES,
    *STUDIES,
)
# fmt: on
