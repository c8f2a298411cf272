"""Texts of words, some of them frequent."""

import numpy as np
import pandas as pd
import pytest


@pytest.fixture
def frame():
    """4,000 texts of up to 11 words."""
    random = np.random.default_rng(5)
    words = np.array([f"w{n}" for n in range(300)])
    texts = [
        " ".join(words[(random.pareto(1.0, random.integers(1, 12)) % 300).astype(int)])
        for _ in range(4000)
    ]
    return pd.DataFrame({"text": texts})
