"""When a wrong variant counts as caught: when a law or the oracle fails, not when the variant itself does."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cloudckpt.errors import CloudckptError

HERE = Path(__file__).parent


def check_caught(error: BaseException) -> None:
    """Raise an error that the code of a variant made by mistake: it would be caught whatever the tests do."""
    slips = (AttributeError, ImportError, NameError, TypeError)
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, slips) and frames and Path(frames[-1].filename).parent == HERE:
        raise error


def is_caught_by(
    law: Callable[..., None], *arguments: Any, also: tuple[type[BaseException], ...] = ()
) -> bool:
    """Say that a law fails, by itself or by an error of the product, or of a kind that is named."""
    with pytest.raises((AssertionError, CloudckptError, pytest.fail.Exception, *also)):
        law(*arguments)
    return True
