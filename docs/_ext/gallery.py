"""Make pages of the programs in examples/: which run, with what options, and where
their pictures are.
"""

import shutil
import tempfile
from pathlib import Path

from sphinx_gallery.scrapers import figure_rst

ROOT = Path(__file__).parents[2]
OUT = Path(tempfile.gettempdir()) / "dask-simjoin-gallery"

OPTIONS = {
    "quickstart.py": ["--output", str(OUT)],
    "clusters.py": ["--out", str(OUT)],
    "hdbscan_places.py": ["--out", str(OUT)],
}
SHOWN = ("larger_than_memory.py", "clusters_larger_than_memory.py", "local_cuda_cluster.py")
"""They take minutes, a cluster or GPUs: their pages show an earlier output."""


ORDER = ("quickstart", "match_places", "near_duplicates", "near_duplicate_texts", "clusters",
         "hdbscan_places", "nightly", "reading_a_plan", "analytics")
"""The others follow."""


def place(name):
    """Return the position of a program in the gallery."""
    stem = Path(name).stem
    return (ORDER.index(stem) if stem in ORDER else len(ORDER), stem)


def arguments(conf, script):
    """Return a program's options, and set its path as Python does."""
    script["example_globals"]["__file__"] = script["src_file"]
    return OPTIONS.get(Path(script["src_file"]).name, [])


def written(block, block_vars, conf):
    """Move pictures that a program wrote to files to its page."""
    paths = []
    for picture in sorted(OUT.glob("*.png")):
        path = next(block_vars["image_path_iterator"])
        shutil.move(picture, path)
        paths.append(path)
    return figure_rst(paths, conf["src_dir"])


def fresh(conf, name):
    """Let no program see what another wrote."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()


def gallery_conf():
    """The settings of sphinx-gallery."""
    skipped = "|".join(name.replace(".", r"\.") for name in SHOWN)
    return {
        "examples_dirs": str(ROOT / "examples"),
        "gallery_dirs": "gallery",
        "filename_pattern": rf"/(?!({skipped})$)\w+\.py$",
        "ignore_pattern": r"(places_map|__init__)\.py$",
        "reset_argv": "gallery.arguments",
        "reset_modules": ("gallery.fresh",),
        "image_scrapers": ("gallery.written", "matplotlib"),
        "notebook_extensions": set(),
        "download_all_examples": False,
        "remove_config_comments": True,
        "plot_gallery": "True",
        "abort_on_example_error": True,
        "within_subsection_order": "gallery.place",
        "show_memory": False,
        "show_signature": False,
        "write_computation_times": False,
        "min_reported_time": 3600,
    }
