from __future__ import annotations

from typing import Any

import pytest

from tests.core.comm import two_ranks


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two ranks saw."""
    return two_ranks.start(tmp_path_factory.mktemp("ranks"))
