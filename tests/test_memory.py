"""Freed memory is kept where that can be done, once, and the user's choice stands."""

import os
import sys

import pytest

from classwise.memory import keep_freed_memory


class TestMemory:
    def test_once_is_enough_and_the_users_choice_stands(self, monkeypatch):
        monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "100000")
        keep_freed_memory.cache_clear()
        assert keep_freed_memory() is False
        monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_")
        assert keep_freed_memory() is False  # asked before
        keep_freed_memory.cache_clear()

    @pytest.mark.skipif(sys.platform != "linux", reason="an option of glibc")
    def test_it_is_done_where_it_can_be(self, monkeypatch):
        for name in [name for name in os.environ if name.startswith(("MALLOC_", "GLIBC_"))]:
            monkeypatch.delenv(name)
        keep_freed_memory.cache_clear()
        assert keep_freed_memory() is True
