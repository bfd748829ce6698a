"""The package's own door: what loading it leaves behind in a process."""

import subprocess
import sys

import pytest

LOOK = "print(gc.isenabled(), gc.get_freeze_count() > 0)"


@pytest.mark.parametrize(
    ("before", "found"),
    [
        ("", "True True"),
        ("gc.disable()", "False False"),  # who collects by himself is left alone
        ("import torch", "True False"),
    ],
)
def test_the_collector_runs_as_before_and_is_spared_what_torch_made(before, found):
    script = f"import gc, classwise\n{before}\nclasswise.Slots\n{LOOK}\nclasswise.Run\n{LOOK}"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == [found, found]
