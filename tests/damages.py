"""Files damaged on purpose, and whether a reader notices."""

import random

import torch
from boundaries import quick_train

from classwise.doors.audit import audit
from classwise.errors import ClasswiseError
from classwise.laws.made_up import few_digits


def flipped(content, seed, times):
    """The same bytes with one bit flipped, many times, anywhere."""
    draw = random.Random(seed)
    for _ in range(times):
        bit = draw.randrange(8 * len(content))
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        yield bytes(changed)


def cut_tails(content, seed, times):
    """The same bytes with the end lost or full of zeros."""
    draw = random.Random(seed)
    for number in range(times):
        begin = draw.randrange(len(content) - 1)
        changed = content[:begin] + bytes(len(content) - begin) * (number % 2)
        if changed != content:
            yield changed


def noticed(path, read, same, damages):
    """How often damage was refused by name; whatever was not must be the same as before."""
    good, before = path.read_bytes(), read()
    count = sum(refusal(path, content, read, same, before) is not None for content in damages)
    path.write_bytes(good)
    return count


def refusal(path, content, read, same, before, called=""):
    """One line that refuses damage by name; None where the same is read as before."""
    path.write_bytes(content)
    try:
        found = read()
    except ClasswiseError as reason:
        words = str(reason)
        assert (called or path.name) in words, words
        assert "\n" not in words, words
        return words
    assert same(found, before), f"{path.name} is damaged, and nobody says so"
    return None


def same_tensors(one, other):
    (here, said), (there, told) = one, other
    equal = set(here) == set(there) and all(torch.equal(here[n], there[n]) for n in here)
    # a checksum whose own name was hit is one more entry that nobody reads
    return equal and {**said, **told} == said


def network():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))


def judge(folder, attacks="clean,fgsm"):
    data = few_digits().train
    groups = {"half": ["a", "b"] * (len(data) // 2)}
    return audit(
        network(), data.images, data.labels, attacks=attacks, eps=0.1, groups=groups, out=folder
    )


def numbers(report):
    return {name: report[name].confusion.tolist() for name in report}


EPOCHS = 3


def again(run):
    return quick_train(
        "at(steps=1)+ccm+ema",
        run.path,
        few_digits(),
        resume=True,
        epochs=EPOCHS,
        watch="train:clean",
        watch_every=1,
    )
