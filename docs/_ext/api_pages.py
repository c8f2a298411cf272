"""List the public names of the package; autosummary makes a page of each."""

import inspect
from pathlib import Path

import dask_simjoin
from dask_simjoin import cluster, errors, methods, neighbors, sets
from dask_simjoin.api.verbs import VERBS
from dask_simjoin.cluster import plots
from dask_simjoin.disk_index.index import Index, IndexChanges
from dask_simjoin.reports.plan import PlanReport
from dask_simjoin.reports.run import ProfileReport, RunReport
from dask_simjoin.sets.plan_report import SetPlanReport

GIVEN = (PlanReport, ProfileReport, RunReport, SetPlanReport, Index, IndexChanges)
"""Classes of objects that verbs return."""

PAGE = Path(__file__).parents[1] / "reference" / "api.rst"


def listed(title, text, names, template=None):
    """A section with a table of names."""
    option = [f"   :template: {template}"] if template else []
    head = [
        title,
        "-" * len(title),
        "",
        text,
        "",
        ".. autosummary::",
        "   :toctree: api",
        "   :nosignatures:",
    ]
    return "\n".join([*head, *option, "", *(f"   ~{name}" for name in names), "", ""])


def page():
    """All sections."""
    functions = [
        f"dask_simjoin.{name}"
        for name in dask_simjoin.__all__
        if name not in VERBS and inspect.isfunction(getattr(dask_simjoin, name))
    ]
    objects = {
        kind: [f"{module.__name__}.{name}" for name in module.__all__]
        for kind, module in {"cluster": cluster, "near": neighbors, "methods": methods, "sets": sets}.items()
    }
    drawn = [
        f"{plots.__name__}.{name}"
        for name, function in inspect.getmembers(plots, inspect.isfunction)
        if function.__module__ == plots.__name__ and not name.startswith("_")
    ]
    given = [f"{kind.__module__}.{kind.__name__}" for kind in GIVEN]
    raised = [
        f"dask_simjoin.errors.{name}"
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, (Exception, errors.Remedy))
    ]
    text = (
        "Each verb is a method of ``frame.simjoin`` for Dask, pandas and cuDF frames. "
        "It is also a "
        "function of the package, with the frame as the first argument."
    )
    return "\n".join(
        [
            "API\n===\n",
            "These pages show the docstrings, as ``help(frame.simjoin.self_join)`` "
            "does. "
            "The :doc:`glossary` explains their words.\n",
            listed("Verbs", text, [f"dask_simjoin.SimJoinAccessor.{name}" for name in VERBS], "verb.rst"),
            listed("Functions", "Other functions of the package.", functions),
            listed(
                "Clusters and neighbors",
                "Estimators, labels from OPTICS, and condensed trees.",
                objects["cluster"] + objects["near"],
            ),
            listed("Pictures", "These need matplotlib.", drawn),
            listed("Objects", "Plans, profiles, reports and indexes.", given),
            listed("Methods", "Objects that ``method=`` accepts instead of a name.", objects["methods"]),
            listed("Sets", "Tokenizers and methods for set joins.", objects["sets"]),
            listed("Errors and warnings", "See :doc:`errors` for remedies.", raised, "error.rst"),
        ]
    )


def write(app, config):
    """Write the page if it is another, and remove pages of names that are no longer
    public.
    """
    text = page()
    if not PAGE.exists() or PAGE.read_text() != text:
        PAGE.write_text(text)
    for made in PAGE.with_suffix("").glob("*.rst"):
        if f"~{made.stem}\n" not in text:
            made.unlink()


def setup(app):
    """Register, before pages are looked for."""
    app.connect("config-inited", write)
    return {"parallel_read_safe": True}
