"""Figures of papers on your own files: points and sets that take the place of synthetic
data.
"""

import gzip
import json

import numpy as np
import pandas as pd
import pytest

from benchmarks.papers import data, files, lists_rows, rows
from benchmarks.papers.sets import made
from benchmarks.papers.sets_told import SHAPES
from tests.whole.test_benchmarks import run


@pytest.fixture(autouse=True)
def no_files():
    """No file is left behind."""
    yield
    files.FILES.clear()
    files._points.cache_clear()


def points(dims, number=60, seed=0):
    """Points with two decimals, which text keeps."""
    return np.random.default_rng(seed).normal(2, 1, (number, dims)).round(2)


def write(path, x, label=False):
    """Write points as the file's name says."""
    kind = path.name.partition(".")[2]
    x = np.column_stack([np.arange(len(x)), x]) if label else x
    if kind == "npy":
        np.save(path, x)
    elif kind == "parquet":
        pd.DataFrame(x).add_prefix("c").to_parquet(path)
    elif kind == "asc":
        np.savetxt(path, x, fmt="%.2f")
    else:
        pd.DataFrame(x).add_prefix("c").to_csv(
            path, index=False, header=kind != "csv.gz", float_format="%.2f"
        )


@pytest.mark.parametrize("label", [False, True])
@pytest.mark.parametrize("kind", ["npy", "parquet", "asc", "csv", "csv.gz"])
@pytest.mark.parametrize("name", ["ColorMoments", "SuSy", "Gaia"])
def test_points_are_read_with_or_without_a_label(name, kind, label, tmp_path):
    x, path = points(files.POINTS[name]), tmp_path / f"x.{kind}"
    write(path, x, label)
    files.use(f"{name}={path}")
    np.testing.assert_array_equal(files.points_of_file(name), x)
    np.testing.assert_array_equal(data.points(name, 7), x[:7])
    scaled = data.points(name + files.SCALED, 60)
    assert (scaled.min(axis=0) == 0).all() and (scaled.max(axis=0) == 1).all()


def test_rows_with_a_missing_value_are_left_out(tmp_path):
    x = points(3)
    (tmp_path / "x.csv").write_text(
        "\n".join(["a;b;c", *(f"{a};{b};{c}" for a, b, c in x), "1;;2"])
    )
    files.use(f"SW3DA={tmp_path / 'x.csv'}")
    np.testing.assert_array_equal(files.points_of_file("SW3DA"), x)


@pytest.mark.parametrize("name", SHAPES)
def test_sets_are_read(name, tmp_path):
    lines = [[5, 900, 7], [7], [], [900, 5, 7], [8, 10**12]]
    with gzip.open(tmp_path / "sets.gz", "wt") as file:
        file.write("\n".join(" ".join(map(str, some)) for some in lines) + "\n")
    files.use(f"{name}={tmp_path / 'sets.gz'}")
    found = files.sets_of_file(name)
    assert found.universe == 5 and found.rows.tolist() == [0, 0, 0, 1, 3, 3, 3, 4, 4]
    assert files.sets_of_file(name, 2).rows.tolist() == [0, 0, 0, 1]
    block = made(name, None)  # equal sets are one, of weight 2
    assert block["weights"].sum() == 4 and sorted(
        np.diff(block["offsets"]).tolist()
    ) == [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "SuSy",
            "1,2,3\n4,5,6\n",
            r"shape \(2, 3\) of numbers; SuSy needs rows of 18 numbers, or of 19 if ",
        ),
        ("Gaia", "", "cannot be read as points"),
        ("Gaia", "a,b\nx,y\n", "needs rows of 2 numbers"),
        ("Gaia", "ra,dec\nnan,1\n", "needs rows of 2 numbers"),
        ("AOL", "1 2\n3 x\n", "each line must be a set of whole numbers"),
        ("AOL", "1 2.5\n", "each line must be a set of whole numbers"),
        ("AOL", "\n\n", "has no sets"),
    ],
)
def test_files_with_other_data_are_refused(name, text, said, tmp_path):
    (tmp_path / "x.txt").write_text(text)
    files.use(f"{name}={tmp_path / 'x.txt'}")
    with pytest.raises(files.DataError, match=said) as error:
        (files.sets_of_file if name in SHAPES else files.points_of_file)(name)
    assert str(error.value).startswith(f"--file {name}={tmp_path / 'x.txt'} ")


def test_a_program_ends_at_such_a_file(tmp_path, monkeypatch):
    (tmp_path / "x.csv").write_text("1,2,3,4\n")
    words = (
        "--paper",
        "load_imbalance",
        "--model",
        "--figure",
        "tab6",
        "--file",
        f"Gaia={tmp_path / 'x.csv'}",
    )
    assert "Gaia needs rows of 2 numbers" in run(
        monkeypatch, "benchmarks", "papers", *words
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("gpu_join", "--file", "Moons=x.npy"),
            "with a name among SuSy, Songs, CoocTexture, ColorHist,",
        ),
        (("gpu_join", "--file", "SuSy"), "'SuSy' must be NAME=PATH"),
        (("gpu_join", "--file", "SuSy=none.csv"), "'none.csv' is not a file"),
        (
            ("gpu_join", "--file", f"AOL={__file__}"),
            "AOL: no figure of gpu_join takes it; use --paper sets",
        ),
        (("lss", "--file", f"Gaia={__file__}"), "use --paper load_imbalance or ego"),
    ],
)
def test_files_that_cannot_be_meant_are_refused(words, said, monkeypatch, capsys):
    assert run(monkeypatch, "benchmarks", "papers", "--model", "--paper", *words) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_each_name_has_figures():
    """With a file there are figures of its data in each of the papers that take it."""
    makers = {"gpu_join": rows.gpu_join, "load_imbalance": rows.load_imbalance}
    makers |= {"lss": lists_rows.lss, "kmeans": lists_rows.kmeans}
    for name, papers in files.USED_BY.items():
        for paper in papers:
            if paper in makers:
                assert name not in {files.name_of(row.data) for row in makers[paper]()}
                files.FILES[name] = None
                assert name in {files.name_of(row.data) for row in makers[paper]()}
                files.FILES.clear()


@pytest.mark.slow
def test_results_name_files_and_stand_ins(tmp_path, monkeypatch, capsys):
    """Without a file the same figure names the data as synthetic."""
    write(tmp_path / "susy.csv", points(18, 900), label=True)
    lines = np.random.default_rng(0).integers(0, 50, (200, 6))
    (tmp_path / "bms.txt").write_text(
        "\n".join(" ".join(map(str, line)) for line in lines) + "\n"
    )
    found = tmp_path / "found.json"
    arguments = [
        "--paper",
        "gpu_join",
        "sets",
        "--model",
        "--quick",
        "--figure",
        "fig8",
        "tab3",
        "--data",
        "SuSy",
        "mixed90",
        "BMS-POS",
        "AOL",
        "--file",
        f"SuSy={tmp_path / 'susy.csv'}",
        f"BMS-POS={tmp_path / 'bms.txt'}",
        "--output",
        found,
    ]
    assert not run(monkeypatch, "benchmarks", "papers", *arguments)
    runs = json.loads(found.read_text())["runs"]
    own = {
        (one["figure"], one["data"], one["rows"], one["file"])
        for one in runs
        if "file" in one
    }
    assert own == {
        ("fig8", "SuSy in [0, 1] (file)", 900, "susy.csv"),
        ("tab3", "BMS-POS (file)", 200, "bms.txt"),
    }
    assert {one["eps"] for one in runs if one["data"].startswith("SuSy")} == {
        0.01,
        0.015,
        0.02,
    }
    assert {one["data"] for one in runs if one.get("synthetic")} == {"mixed90", "AOL"}
    printed = capsys.readouterr().out
    assert all(
        one in printed
        for one in ("SuSy in [0, 1] (file)", "mixed90 (synthetic)", "'AOL (synthetic)'")
    )


def test_real_points_take_the_place_of_mixtures(tmp_path, monkeypatch):
    """In table VI, with the published ratios, and beside Super-EGO."""
    write(tmp_path / "gaia.npy", points(2, 800))
    found = tmp_path / "found.json"
    words = (
        "--model",
        "--figure",
        "tab6",
        "--file",
        f"Gaia={tmp_path / 'gaia.npy'}",
        "--output",
        found,
    )
    assert not run(
        monkeypatch, "benchmarks", "papers", "--paper", "load_imbalance", *words
    )
    table = json.loads(found.read_text())["runs"]
    assert [one["data"] for one in table] == 3 * ["Gaia (file)"] and table[0][
        "rows"
    ] == 800
    assert [round(one["published"], 2) for one in table] == [1, 1.37, 1.39]
    words = (
        "--data",
        "Gaia",
        "--repeat",
        1,
        "--file",
        f"Gaia={tmp_path / 'gaia.npy'}",
        "--output",
        found,
    )
    assert not run(monkeypatch, "benchmarks", "papers", "--paper", "ego", *words)
    (one,) = json.loads(found.read_text())["runs"]
    assert (one["data"], one["rows"], one["eps"], one["figure"]) == (
        "Gaia (file)",
        800,
        0.04,
        "fig13",
    )


def test_images_are_joined_by_lists(tmp_path, monkeypatch):
    write(tmp_path / "moments.asc", points(9, 500), label=True)
    found = tmp_path / "found.json"
    words = (
        "--model",
        "--quick",
        "--figure",
        "4",
        "5.11-12",
        "--file",
        f"ColorMoments={tmp_path / 'moments.asc'}",
        "--output",
        found,
    )
    assert not run(
        monkeypatch, "benchmarks", "papers", "--paper", "lss", "kmeans", *words
    )
    table = json.loads(found.read_text())["runs"]
    assert {(one["figure"], one["data"]) for one in table} == {
        ("4", "ColorMoments in [0, 1] (file)"),
        ("5.11-12", "ColorMoments (file)"),
    }
    assert all(one["found"] == one["pairs"] for one in table)


def test_nothing_that_runs_is_no_success(monkeypatch):
    words = ("--paper", "load_imbalance", "--model", "--quick", "--data", "Gaia")
    assert "Nothing was run" in run(monkeypatch, "benchmarks", "papers", *words)
