"""EfficientNet-Lite under corruptions, by metaclass: tables and a figure from kept audits.

python benchmarks/lite_groups.py AUDITS [--parts severities,networks]
    [--figure docs/images/lite-groups.svg]

AUDITS holds the folders lite0, lite0-corrupted, lite1 and lite2 that the commands in
docs/imagenet-photographs.md make; no model is asked. Prints Markdown.

A photograph's value under a set of conditions is the share of them under which the answer is right,
and a group's rate the mean over its photographs. Its interval is Wilson's for one verdict per
photograph at that rate, which errs on the wide side. Whether groups differ at all is tested by
dealing the photographs out anew.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
from lite_figure import Lane, Row, drawn
from lite_seen import SEED, Seen, Whole, asked, differ, halves, redrawn, seen, under

from classwise.corruptions.severities import C19, SEVERITIES
from classwise.judging.samples import AuditedSamples, read_samples
from classwise.statistics.intervals import wilson
from classwise.statistics.ranks import random_agreement, spearman
from classwise.statistics.redrawn import interval_of

NETWORKS = ("lite0", "lite1", "lite2")
LEVEL, DRAWS = 0.95, 2000
MIDDLE = 3  # the severity that all three networks were asked about
PHOTOGRAPHS = 200  # that each severity was asked about, at the least


def cell(rate: float, size: int) -> str:
    """A rate in per cent with its interval."""
    low, high = (float(end) for end in wilson(rate * size, size, LEVEL))
    return f"{100 * rate:.1f} ({100 * low:.0f}–{100 * high:.0f})"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print Markdown."""
    print(f"\n| {' | '.join(heads)} |\n| --- |{' ---: |' * (len(heads) - 1)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def complete(audit: AuditedSamples, name: str) -> bool:
    """Whether all severities were asked about; one of them may have been asked about more."""
    counts = [
        len(audit.conditions[key].sample) if key in audit.conditions else 0
        for key in (f"corruption:{name}-{level}" for level in SEVERITIES)
    ]
    return min(counts) >= PHOTOGRAPHS


def all_severities(audit: AuditedSamples, attacked: AuditedSamples) -> None:
    """Lite0 under every corruption and severity, and under attack."""
    done = [name for name in C19 if complete(audit, name)]
    names = [f"corruption:{name}-{level}" for name in done for level in SEVERITIES]
    shared = asked(audit, ["clean", *names])
    right = under(audit, names, shared).mean(1).reshape(len(done), len(SEVERITIES))
    print(f"\n## lite0, {len(done)} corruptions at 5 severities, {len(shared)} photographs")
    rows = [
        [name, *(f"{100 * rate:.1f}" for rate in (*line, line.mean()))]
        for name, line in zip(done, right, strict=True)
    ]
    rows.append(["all", *(f"{100 * rate:.1f}" for rate in (*right.mean(0), right.mean()))])
    table(["corruption", *map(str, SEVERITIES), "mean"], rows)
    found = seen("lite0", audit, names, shared)
    by_group([found], attacked, shared)


def attacks_on(audit: AuditedSamples, shared: Whole) -> list[str]:
    """Attacks that were run on all of these photographs."""
    whole = {*shared.tolist()}
    return [
        name
        for name, rows in audit.conditions.items()
        if name.startswith("pgd") and whole <= {*rows.sample.tolist()}
    ]


def by_group(found: Sequence[Seen], attacked: AuditedSamples | None, shared: Whole) -> None:
    """Groups from the one that keeps least of what it had clean, over all networks."""
    first = found[0]
    clean = [one.rates(one.clean) for one in found]
    rates = [one.rates(one.values) for one in found]
    order = np.argsort(np.mean(rates, axis=0), kind="stable")
    losses = [one.clean - one.values for one in found]
    pure = [differ(one, lost) for one, lost in zip(found, losses, strict=True)]
    plain = [differ(one, one.values) for one in found]
    attacks = [] if attacked is None else attacks_on(attacked, shared)
    fallen = [] if attacked is None else [*under(attacked, attacks, shared)]
    heads = ["metaclass", "n"]
    for one in found:
        heads += [f"{one.name} clean", "corrupted", "points lost"]
    rows = []
    for k in order:
        size, row = int(first.sizes[k]), [first.groups[k], str(first.sizes[k])]
        for was, now, (_, lose), (_, stand) in zip(clean, rates, pure, plain, strict=True):
            marks = "*" if stand[k] < 1 - LEVEL else "", "*" if lose[k] < 1 - LEVEL else ""
            row += [cell(was[k], size), cell(now[k], size) + marks[0]]
            row.append(f"{100 * (was[k] - now[k]):.1f}{marks[1]}")
        row += [cell(float(one[first.of == k].mean()), size) for one in fallen]
        rows.append(row)
    whole, total = ["all", str(len(shared))], len(shared)
    for one in found:
        ends, began = float(one.values.mean()), float(one.clean.mean())
        whole += [cell(began, total), cell(ends, total), f"{100 * (began - ends):.1f}"]
    whole += [cell(float(one.mean()), total) for one in fallen]
    table([*heads, *attacks], [*rows, whole])
    print()
    for one, (alike, _), (lost, _) in zip(found, plain, pure, strict=True):
        print(
            f"{one.name}: all groups equally good when corrupted, p = {alike:.4f}; all lose "
            f"equally, p = {lost:.4f}. A star: unlike the rest at 5 %, Holm over the groups."
        )


def three(audits: Sequence[AuditedSamples]) -> list[Seen]:
    """The three networks at the middle severity."""
    names = [f"corruption:{name}-{MIDDLE}" for name in C19]
    shared = np.array(
        sorted(set.intersection(*({*asked(a, ["clean", *names]).tolist()} for a in audits))),
        np.int64,
    )
    print(f"\n## Three networks, 19 corruptions at severity {MIDDLE}, {len(shared)} photographs")
    right = np.array([under(audit, ["clean", *names], shared).mean(1) for audit in audits])
    rows = [
        [name, *(f"{100 * rate:.1f}" for rate in line)]
        for name, line in zip(["clean", *C19], right.T, strict=True)
    ]
    rows.append(["mean of the 19", *(f"{100 * rate:.1f}" for rate in right[:, 1:].mean(1))])
    table(["condition", *NETWORKS], rows)
    orders = spearman(right[:, 1:])
    said = [f"{NETWORKS[i]} and {NETWORKS[j]} {orders[i, j]:.2f}" for i, j in pairs()]
    print(f"\nThe order of the 19 corruptions, Spearman's ρ: {', '.join(said)}.")
    found = [seen(n, audit, names, shared) for n, audit in zip(NETWORKS, audits, strict=True)]
    by_group(found, None, shared)
    return found


def pairs() -> list[tuple[int, int]]:
    """The networks two by two."""
    return list(combinations(range(len(NETWORKS)), 2))


def agreement(found: Sequence[Seen]) -> None:
    """Whether the networks have the same weak groups, and which is better at all."""
    print("\n## Do they agree?\n")
    for i, j in pairs():
        more = found[j].values - found[i].values  # photograph by photograph
        wide = 1.96 * more.std(ddof=1) / np.sqrt(len(more))
        print(
            f"{NETWORKS[j]} over {NETWORKS[i]}: {100 * more.mean():+.1f} ± {100 * wide:.1f} points."
        )
    kinds = {
        "clean accuracy": [one.clean for one in found],
        "accuracy when corrupted": [one.values for one in found],
        "points lost": [one.clean - one.values for one in found],
    }
    rows = []
    for words, values in kinds.items():
        random = np.random.default_rng(SEED)
        rates = np.array([one.rates(v) for one, v in zip(found, values, strict=True)])
        draws = np.array([spearman(redrawn(found, values, random)) for _ in range(DRAWS)])
        span = interval_of(spearman(rates), draws, LEVEL, -1.0, 1.0)
        crossed = np.nanmean([halves(found, values, random) for _ in range(200)], axis=0)
        single = spearman(np.array(values))
        for i, j in pairs():
            rows.append(
                [
                    *(words, f"{NETWORKS[i]}, {NETWORKS[j]}", f"{span.value[i, j]:.2f}"),
                    f"{span.low[i, j]:.2f} to {span.high[i, j]:.2f}",
                    f"{(crossed[i, j] + crossed[j, i]) / 2:.2f}",
                    f"{single[i, j]:.2f}",
                ]
            )
    heads = ["order of the groups by", "networks", "ρ", "95 %", "ρ, other photographs"]
    table([*heads, "ρ, photograph by photograph"], rows)
    count, few = len(found[0].groups), int(found[0].sizes.min())
    print(
        f"\nUnrelated orders of {count} groups exceed {random_agreement(count):.2f} in one case of "
        f"twenty. The smallest group has {few} photographs."
    )


def figure(found: Sequence[Seen]) -> str:
    """Groups as in the table, the worst at the top."""
    rates = [one.rates(one.values) for one in found]
    rows = []
    for k in np.argsort(np.mean(rates, axis=0), kind="stable"):
        size, lanes = int(found[0].sizes[k]), []
        for one, mine in zip(found, rates, strict=True):
            low, high = (float(end) for end in wilson(mine[k] * size, size, LEVEL))
            lanes.append(Lane(float(one.rates(one.clean)[k]), float(mine[k]), low, high))
        rows.append(Row(found[0].groups[k], size, lanes))
    title = f"Right under 19 corruptions at severity {MIDDLE}, by metaclass (photographs)"
    return drawn(title, NETWORKS, rows)


def severities(args: argparse.Namespace) -> None:
    """One network in depth."""
    all_severities(
        read_samples(args.audits / "lite0-corrupted"), read_samples(args.audits / "lite0")
    )


def networks(args: argparse.Namespace) -> None:
    """Three networks side by side."""
    folders = ("lite0-corrupted", "lite1", "lite2")
    found = three([read_samples(args.audits / name) for name in folders])
    agreement(found)
    if args.figure:
        args.figure.write_text(figure(found), encoding="utf-8")


PARTS = {"severities": severities, "networks": networks}


def main() -> None:
    """Print the tables and draw the figure."""
    say = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    say.add_argument("audits", type=Path)
    say.add_argument("--parts", type=lambda text: text.split(","), default=list(PARTS))
    say.add_argument("--figure", type=Path)
    args = say.parse_args()
    for part in args.parts:
        PARTS[part](args)


if __name__ == "__main__":
    main()
