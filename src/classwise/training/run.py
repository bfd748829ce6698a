"""A training run on disk: its folder, and the recipe and configuration that it was trained with."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from classwise.errors import ClasswiseError, unknown
from classwise.foreign import installed
from classwise.methods import METHODS
from classwise.recipe import Recipe, compose
from classwise.recipe_text import make_method
from classwise.record.lines import are_rates, damaged_lines, read_lines
from classwise.record.run_folder import RunFolder
from classwise.training.config import TrainConfig
from classwise.training.fluctuation import mean_fluctuation
from classwise.training.watched import parse_watched


@dataclass(frozen=True)
class Run(RunFolder):
    """A training run on disk."""

    @property
    def config(self) -> TrainConfig:
        """The configuration it was trained with."""
        if "config" not in self.about:
            raise ClasswiseError(
                f"{self.path} keeps audits of a model that was not trained by classwise; to audit "
                f"more, name that model: classwise audit MODEL --data DATA --out {self.path}"
            )
        return TrainConfig(**self.about["config"])

    @property
    def recipe(self) -> Recipe:
        """The recipe it was trained with, where all its methods are built in."""
        return self.read_recipe()

    def read_recipe(self, imports: Collection[str] = ()) -> Recipe:
        """The recipe it was trained with; `imports` are the modules that it may have imported.

        run.json may be a stranger's file, so by itself it leads to no import at all.
        """
        for name in self.about["recipe"]:
            homes = [entry.module for entry in installed().get(name, ()) if name not in METHODS]
            homes += [name.partition(":")[0]] if ":" in name else []
            for home in homes:
                if home not in imports:
                    raise ClasswiseError(
                        f"{self.path} was trained with {name}, which is not part of classwise; if "
                        f'you trust that code, use run.read_recipe(imports=("{home}",))'
                    )
        methods = self.about["recipe"].items()
        return compose(make_method(name, options, imports) for name, options in methods)

    @property
    def looks(self) -> list[dict[str, Any]]:
        """What was watched, one record per epoch that was looked at."""
        path = self.path / "watch.jsonl"
        records = read_lines(path)
        for record in records:
            if not are_rates({name: value for name, value in record.items() if name != "epoch"}):
                raise damaged_lines(path, f"epoch {record['epoch']} has something else than rates")
        return records

    @property
    def unopened_averages(self) -> list[str]:
        """Averages that took in no epoch, so that there are no weights of theirs to audit."""
        taken = self.history[-1].get("averages", {}) if self.history else {}
        return [name for name, count in taken.items() if not count]

    def fluctuation(self, of: str, last: int) -> dict[str, Any]:
        """Mean change of each class, and of the worst, between epochs in a row, over the last ones.

        `of` is written as in `watch`: `valid:pgd-10` is in every history, `valid:pgd-10@ema` for an
        average; `test:pgd-10@ema` must have been watched in every epoch (`watch_every=1`).
        """
        wanted = parse_watched(of, ("valid", "test", "train"))
        rates, known = {}, set()
        if wanted.seen.split == "valid":
            for record in self.history:
                found = record["valid"].get(wanted.average or "live", {})
                known |= {f"valid:{attack}" for attack in found}
                if wanted.seen.attack in found:
                    rates[record["epoch"]] = found[wanted.seen.attack]
        else:
            for record in self.looks:
                known |= set(record) - {"epoch"}
                if str(wanted) in record:
                    rates[record["epoch"]] = record[str(wanted)]
        if not rates:
            raise unknown(f"statistics of {self.path}", of, known or ["none"])
        return mean_fluctuation(rates, last)
