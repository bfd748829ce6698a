"""Files in a stranger's folder that are no files, or too large: told at once, in little memory."""

import os
import signal
import tracemalloc

import duckdb
import pytest
from damages import judge, numbers
from refusals import refused

from classwise.judging.audits import read_ledger
from classwise.record import lines, shard_files
from classwise.training.run import Run

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")


@pytest.fixture
def soon():
    """Whoever waits for a pipe is woken."""

    def late(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 10)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def pipe(path):
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def vast(path):
    with path.open("ab") as stream:
        stream.truncate(1 << 30)  # it takes no room


@pytest.fixture
def small_limits(monkeypatch):
    monkeypatch.setattr(shard_files, "MOST_SHARD_BYTES", 1 << 20)
    monkeypatch.setattr(lines, "MOST_LOG_BYTES", 1 << 20)


@pytest.mark.usefixtures("soon", "small_limits")
@pytest.mark.parametrize(("make", "says"), [(pipe, "no plain file"), (vast, "more than")])
class TestStrange:
    def test_a_shard_is_refused_and_set_aside(self, audited, make, says):
        before = numbers(judge(audited))
        path = next((audited / "predictions").glob("*fgsm*.parquet"))
        make(path)
        with refused(path.name, says, "repeat the audit"):
            read_ledger(audited)
        assert numbers(judge(audited)) == before
        assert (audited / "predictions" / "damaged" / path.name).exists()

    def test_a_history_is_refused(self, run, make, says):
        make(run.path / "history.jsonl")
        with refused("history.jsonl", says):
            Run(run.path).history  # noqa: B018


def test_a_checksum_is_made_and_verified_in_pieces(tmp_path, monkeypatch):
    path = tmp_path / "large"
    end = shard_files.UNSEALED.encode() + b"the end"
    with path.open("wb") as stream:
        stream.truncate(60 << 20)
        stream.seek(0, os.SEEK_END)
        stream.write(end)
    tracemalloc.start()
    shard_files.seal_file(path)
    assert shard_files.is_whole(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 50 << 20
    for size in (1, 7, len(end)):  # wherever pieces end
        monkeypatch.setattr(shard_files, "_PIECE", size)
        few = tmp_path / f"few{size}"
        few.write_bytes(b"blake2b=" + b"x" * 40 + end)
        shard_files.seal_file(few)
        content = few.read_bytes()
        assert content.endswith(b"the end")
        assert shard_files.is_whole(few)
        for place in (0, 30, len(content) - 1):
            few.write_bytes(content[:place] + b"?" + content[place + 1 :])
            assert shard_files.is_whole(few) is False


def test_looking_for_damage_keeps_within_the_bounds(audited, monkeypatch):
    real = duckdb.connect

    def bounded(*words, config=None):
        assert config
        assert "memory_limit" in config
        return real(*words, config=config)

    monkeypatch.setattr(duckdb, "connect", bounded)
    assert shard_files.damaged_files(audited / "predictions") == []
