"""How many examples Hypothesis tries: a fifth of them by default, all with `pytest --all`."""

from hypothesis import HealthCheck, settings

WHOLE = 100
"""Examples of a test that names no number, in the profile of which other numbers are."""

COMMON = {
    "deadline": None,
    "print_blob": True,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}
settings.register_profile("quick", max_examples=WHOLE // 5, **COMMON)
settings.register_profile("full", max_examples=WHOLE, **COMMON)


def examples(number: int) -> int:
    """So many examples, or as few as the profile asks for, but at least ten.

    Parameters
    ----------
    number
        Examples in the profile ``full``.
    """
    return max(min(number, 10), number * settings().max_examples // WHOLE)


def chosen(every: list, few: list) -> list:
    """Every value in the profile ``full``, and few of them in others: of parameters that are compiled for."""
    assert set(few) <= set(every)
    return every if settings().max_examples >= WHOLE else few
