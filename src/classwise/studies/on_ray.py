"""Runs of a study as tasks of Ray: on this machine, or on a cluster.

The nodes of a cluster share the folder of the runs, or reach the URL that they are kept at. A task
is one run, as with processes. If its worker or node dies, Ray gives it to another one, which goes
on from the run's last checkpoint.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from classwise.errors import ClasswiseError
from classwise.studies.grid import Done, Task, attempt

MISSING = "--on ray needs Ray, which is not installed; run: pip install 'classwise[ray]'"


@dataclass(frozen=True)
class OnRay:
    """Tasks of Ray, so many at a time; without an address on a Ray of our own on this machine.

    On a cluster every node must see the folder of the runs under the same path: what is not there
    would be trained, and be lost with the node. So that is looked for before anything runs.
    """

    address: str
    workers: int
    tries: int = 3  # a task is given out again so often if its worker dies
    cpus: float = 1.0  # of each task
    gpus: float = 0.0

    def run(self, jobs: Sequence[Task], done: Done) -> None:
        """Run all jobs."""
        ray = _imported()
        with _begun(ray, self.address, math.ceil(self.workers * self.cpus)):
            task = ray.remote(num_cpus=self.cpus, num_gpus=self.gpus, max_retries=self.tries - 1)(
                _task
            )
            threads = max(1, int(self.cpus))
            left = [replace(job, path=job.path.absolute(), threads=threads) for job in jobs]
            given = dict(zip((job.path for job in left), jobs, strict=True))
            self._look_for_folder(ray, left)
            running: dict[Any, Task] = {}
            while left or running:
                while left and len(running) < self.workers:
                    job = left.pop(0)
                    running[task.remote(job)] = job
                ended, _ = ray.wait(list(running), num_returns=1)
                for reference in ended:
                    job = running.pop(reference)
                    done(given[job.path], self._outcome(ray, reference))

    def _outcome(self, ray: Any, reference: Any) -> str:
        """Why a task failed, in words; nothing if it did not."""
        try:
            return str(ray.get(reference))
        except ray.exceptions.RayError as reason:
            first = next(iter(str(reason).strip().splitlines()), type(reason).__name__)
            return f"its worker died {self.tries} times: {first}"

    def _look_for_folder(self, ray: Any, jobs: Sequence[Task]) -> None:
        """Ask every node whether it sees the folder of the runs."""
        if not self.address or not jobs or jobs[0].home:
            return  # a Ray of our own is this machine, and a URL is no folder
        home = jobs[0].path.parent
        home.mkdir(parents=True, exist_ok=True)
        sees = ray.remote(num_cpus=0)(_is_there)
        nodes = [node for node in ray.nodes() if node["Alive"]]
        for node in nodes:
            here = f"node:{node['NodeManagerAddress']}"
            if not ray.get(sees.options(resources={here: 0.001}).remote(home)):
                raise ClasswiseError(
                    f"node {node['NodeManagerAddress']} does not see {home}; give --out a folder "
                    "that all nodes share under one path, or a URL such as s3://BUCKET/runs"
                )


def _task(job: Task) -> str:
    return attempt(job)


def _is_there(folder: Path) -> bool:
    return folder.is_dir()


def _imported() -> Any:
    try:
        import ray
    except ImportError:
        raise ClasswiseError(MISSING) from None
    return ray


@contextmanager
def _begun(ray: Any, address: str, cpus: int) -> Iterator[None]:
    """Join the Ray at an address, or begin one on this machine's own loopback, and leave it."""
    if ray.is_initialized():
        raise ClasswiseError("this process has begun a Ray of its own; end it with ray.shutdown()")
    quiet = {"logging_level": "error", "log_to_driver": False}
    printing = builtins.print  # Ray puts its own in the place of it
    try:
        if address:
            ray.init(address=address, **quiet)
        else:
            own = {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
            ray.init(num_cpus=cpus, **own, **quiet)
    except Exception as reason:  # Ray raises plain ones where its own processes come up too late
        first = next(iter(str(reason).strip().splitlines()), type(reason).__name__)
        where = f"no Ray at {address}" if address else "Ray did not begin on this machine"
        raise ClasswiseError(f"{where}: {first}; repeat the command, or use --on local") from None
    try:
        yield
    finally:
        ray.shutdown()
        builtins.print = printing
