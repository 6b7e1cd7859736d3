"""What the tests of pages share: an empty store, and a list of what was asked."""

from __future__ import annotations

import pytest

from widgets.run_store import RunStore


@pytest.fixture
def store(qapp):
    return RunStore()


@pytest.fixture
def asked():
    return []
