"""The trials of a search, kept by Optuna in one file; only who holds the folder writes there.

Each trial is drawn from the seed, its number and what is known of those before it, so a search
that was broken off and goes on is the search that it would have been.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from classwise.errors import ClasswiseError
from classwise.tuning.judged import Pair
from classwise.tuning.ranges import Range, Varied
from classwise.tuning.trial import Outcome

FILE = "trials.sqlite"
_NAME = "tune"
_VOID = "void"  # what is noted of a trial that was broken off before it had its values


def load_optuna() -> Any:
    """Import Optuna, or say how to install it."""
    try:
        import optuna
    except ImportError:
        raise ClasswiseError(
            "classwise tune needs Optuna; install it with: pip install 'classwise[tune]'"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


@dataclass(frozen=True)
class Trial:
    """A trial as it is kept."""

    number: int
    values: Mapping[str, Any]
    state: str  # complete, stopped, failed or begun
    pair: Pair | None
    about: Mapping[str, Any]  # identity, weights, stopped, failed


class Trials:
    """Asks for values to try and keeps what became of them."""

    def __init__(self, folder: Path, search: Sequence[Varied], seed: int) -> None:
        self._optuna = load_optuna()
        self.search, self.seed = {one.option: one for one in search}, seed
        self._study = self._open(folder / FILE)
        self._asked: dict[int, Any] = {}
        self._forget_unborn()

    def _open(self, path: Path) -> Any:
        from sqlalchemy.engine import URL
        from sqlalchemy.exc import SQLAlchemyError

        address = URL.create("sqlite", database=str(path.resolve())).render_as_string()
        try:
            return self._optuna.create_study(
                storage=self._optuna.storages.RDBStorage(address),
                study_name=_NAME,
                directions=["maximize", "maximize"],
                load_if_exists=True,
            )
        except (SQLAlchemyError, self._optuna.exceptions.OptunaError, RuntimeError) as reason:
            words = str(reason).splitlines()[0]
            raise ClasswiseError(
                f"{path} cannot be read as trials ({words}); its runs are whole: move it away, and "
                "repeat the command to search anew, or choose another folder"
            ) from None

    def begin_with(self, values: Mapping[str, Any]) -> None:
        """Make these the values of the first trial."""
        if not self._counted():
            self._study.enqueue_trial(dict(values))

    def ask(self) -> Trial:
        """Values of one more trial; it counts as begun."""
        states = self._optuna.trial.TrialState
        number = sum(one.state != states.WAITING for one in self._counted())
        self._study.sampler = self._optuna.samplers.TPESampler(seed=self.seed * 100_003 + number)
        trial = self._study.ask(
            {name: self._distribution(one) for name, one in self.search.items()}
        )
        self._asked[trial.number] = trial
        return Trial(trial.number, self._tidy(trial.params), "begun", None, {})

    def tell(self, outcome: Outcome) -> None:
        """Keep what became of a trial."""
        state, trial = self._optuna.trial.TrialState, self._trial(outcome.number)
        for name in ("identity", "weights", "stopped", "failed"):
            if value := getattr(outcome, name):
                trial.set_user_attr(name, value)
        if outcome.failed:
            self._study.tell(trial, state=state.FAIL)
        elif outcome.pair is None:
            self._study.tell(trial, state=state.PRUNED)
        else:
            self._study.tell(trial, [outcome.pair.average, outcome.pair.worst])

    def _trial(self, number: int) -> Any:
        if number not in self._asked:  # asked by a process that is gone
            frozen = self._study.trials[number]
            self._asked[number] = self._optuna.trial.Trial(self._study, frozen._trial_id)
        return self._asked[number]

    @property
    def all(self) -> list[Trial]:
        """Every trial that has begun, in order."""
        states = {"COMPLETE": "complete", "PRUNED": "stopped", "FAIL": "failed", "RUNNING": "begun"}
        found = []
        for one in self._counted():
            if one.state.name in states:
                pair = Pair(*one.values) if one.state.name == "COMPLETE" else None
                values, about = self._tidy(one.params), one.user_attrs
                found.append(Trial(one.number, values, states[one.state.name], pair, about))
        return found

    def unfinished(self) -> list[Trial]:
        """Trials that somebody began and did not end."""
        return [one for one in self.all if one.state == "begun"]

    def _forget_unborn(self) -> None:
        """A trial that was broken off before it had all its values never was."""
        for one in self.unfinished():
            if set(one.values) != set(self.search):
                trial = self._trial(one.number)
                trial.set_user_attr(_VOID, True)
                self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)

    def _counted(self) -> list[Any]:
        """All that Optuna keeps, without those that never were: the next is drawn as they were."""
        known = self._study.get_trials(deepcopy=False)
        return [one for one in known if _VOID not in one.user_attrs]

    def _tidy(self, values: Mapping[str, Any]) -> dict[str, Any]:
        if strange := sorted(set(values) - set(self.search)):
            raise ClasswiseError(
                f"{FILE} holds trials of another search, over {strange[0]}; put its own file back, "
                "or choose another folder"
            )
        return {name: self.search[name].tidy(value) for name, value in values.items()}

    def _distribution(self, one: Varied) -> Any:
        kinds = self._optuna.distributions
        if not isinstance(one, Range):
            return kinds.CategoricalDistribution(one.words)
        if one.whole:
            return kinds.IntDistribution(int(one.low), int(one.high), log=one.log)
        return kinds.FloatDistribution(float(one.low), float(one.high), log=one.log)
