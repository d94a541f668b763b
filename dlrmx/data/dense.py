"""The transform of dense columns, in float64, and which of its results no 32-bit float can hold."""

import numpy as np
from numpy.typing import NDArray

from dlrmx.recipe.schema import Dense

FLOAT32_MAX = float(np.finfo(np.float32).max)
BEYOND = " is beyond the range of a 32-bit float"


def transformed(values: NDArray[np.float64], settings: Dense) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Each value transformed, NaN becomes the configured value; and which are beyond the range of a float32."""
    absent = np.isnan(values)
    if settings.transform == "log1p":
        values = np.log1p(np.maximum(values, 0))
    elif settings.transform == "standardize":
        assert settings.mean is not None and settings.std is not None, "the recipe's rules ask for both"
        values = (values - settings.mean) / settings.std
    values = np.where(absent, settings.missing, values)
    return values, np.abs(values) > FLOAT32_MAX
