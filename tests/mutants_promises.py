"""Mutants of what is promised: error rates of intervals and gates, locks, checksums."""

from mutant import Mutant

_WORST = "statistics/worst_change.py"
_EXACT = "statistics/exact_change.py"
WORST = ("statistics/test_worst_change.py::test_it_is_what_its_equations_say",)
BOUND = (
    "statistics/test_exact_change.py::test_the_bound_is_where_all_truths_beyond_become_unlikely",
)
SCORE = ("statistics/test_paired.py::TestPairedInterval",)
DROPS = ("judging/test_gate_promise.py::TestDrops",)
EMPTY = (f"{DROPS[0]}::test_a_class_without_images_does_not_share_the_error",)
TAKING_OVER = ("test_locks.py::TestTakingOver",)
SEAL = ("record/test_damaged_audits.py::test_a_seal_holds_whatever_stands_in_it",)
SHARDS = ("record/test_damaged_audits.py::TestShards",)

# fmt: off
PROMISES = (
    # --- the change of the worst class
    Mutant(_WORST, "_PAIRED, _CHOICE = 1 / 4, 1 / 8", "_PAIRED, _CHOICE = 1 / 2, 1 / 8", WORST,
           "the two bounds of changes spend all of the error"),
    Mutant(_WORST, "_PAIRED, _CHOICE = 1 / 4, 1 / 8", "_PAIRED, _CHOICE = 1 / 4, 1 / 4", WORST,
           "choosing the worst class costs twice what is set aside for it"),
    Mutant(_WORST, "1 - 2 * tail / count)[1]", "1 - 2 * tail)[1]", WORST,
           "of many classes one that is not worst takes its place by chance"),
    Mutant(_WORST, "half = (1 - level) / 2", "half = 1 - level", WORST,
           "the interval of a single class is wrong twice as often as it says"),
    # --- bounds of one change
    Mutant(_EXACT, "sought = (1 - _NUISANCE) * self.tail", "sought = self.tail", BOUND,
           "what the nuisance costs is paid by nobody"),
    Mutant(_EXACT, "exact(c, n, 1 - _NUISANCE * tail)", "exact(c, n, 0.5)", BOUND,
           "likely truths are left out of the maximum"),
    Mutant("statistics/paired.py", "np.divide(root, 4 * n", "np.divide(root, 2 * n", SCORE,
           "the score's variance is that of another truth"),
    # --- the gate
    Mutant("judging/gate.py", "shared = error / max(int((sizes > 0).sum()), 1)",
           "shared = error", DROPS, "with K classes a rule fails wrongly K times too often"),
    Mutant("judging/gate.py", "shared = error / max(int((sizes > 0).sum()), 1)",
           "shared = error / len(sizes)", EMPTY, "classes without images hide a drop"),
    Mutant("judging/gate.py", "kept = surely_above(lost, won, sizes, limit, error)",
           "kept = surely_above(lost, won, sizes, limit, shared)", DROPS,
           "a rule that holds stays undecided"),
    # --- one writer
    Mutant("locks.py", "return _born(self.pid) != self.born if self.born else not",
           "return not", TAKING_OVER,
           "a lock of the dead is kept by whoever has its number now"),
    Mutant("locks.py", "return Holder.read(self.path) == self.me", "return True", TAKING_OVER,
           "a lock that somebody took over is given back in their place"),
    # --- checksums
    Mutant("sealed.py", "if said is not None and said != _checksum(found):",
           "if said is not None and not said:", SEAL, "a damaged card is believed"),
    Mutant("sealed.py", "plain = json.loads(json.dumps(content))", "plain = content", SEAL,
           "a card with numbers for keys is called damaged as soon as it is written"),
    Mutant("record/shard_files.py", "        return False\n    _whole.add(known)",
           "        return None\n    _whole.add(known)", SHARDS, "a damaged shard is read"),
    Mutant("record/shard_files.py",
           "known = (str(path), facts.st_size, facts.st_mtime_ns, facts.st_ino)",
           "known = (str(path), 0, 0, 0)", SHARDS,
           "a shard that was whole once is believed for ever"),
)
# fmt: on
