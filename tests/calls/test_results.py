"""Results in the library of the table that was passed."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dask_simjoin
from dask_simjoin.errors import (
    UnsupportedFrameError,
)

COLUMNS = {
    "x": [0.0, 1.0, 5.0],
    "name": ["a", "b", "c"],
    "size": [1.5, float("nan"), 2.5],
}
TABLE = pa.table(COLUMNS)


def test_arrow_tables_give_arrow_tables():
    found = dask_simjoin.self_join(
        TABLE, 2.0, on="x", keep=["name", "size"], return_distance=True
    )
    assert isinstance(found, pa.Table)
    assert found.column_names[:3] == ["left", "right", "distance"]
    assert found["name_right"].to_pylist() == ["b"]
    assert found["size_right"].null_count == 0  # NaN stays NaN
    counts = dask_simjoin.neighbor_counts(TABLE, 2.0, on="x")
    assert isinstance(counts, pa.Array) and counts.to_pylist() == [1, 1, 0]
    several = dask_simjoin.neighbor_counts(TABLE, [2.0, 9.0], on="x")
    assert several.to_pydict() == {"2.0": [1, 1, 0], "9.0": [2, 2, 2]}
    assert dask_simjoin.count_pairs(TABLE, 2.0, on="x") == 1
    kept = dask_simjoin.drop_near_duplicates(TABLE, 2.0, on="x")
    assert kept.column_names == TABLE.column_names and kept["name"].to_pylist() == [
        "a",
        "c",
    ]
    assert dask_simjoin.connected_components(found).num_rows == 2


def test_rows_without_a_match_are_missing():
    found = dask_simjoin.join(
        TABLE, TABLE.slice(0, 1), 2.0, on="x", how="left", return_distance=True
    )
    found = found.sort_by("left")
    assert found["right"].to_pylist() == [0, 0, None]
    assert found["distance"].to_pylist() == [0.0, 1.0, None]


def test_arrays_and_pandas_frames_give_pandas_frames():
    frame = pd.DataFrame(COLUMNS)
    assert isinstance(dask_simjoin.self_join(np.zeros((3, 2)), 1.0), pd.DataFrame)
    assert isinstance(frame.simjoin.join(TABLE, 1.0, on="x"), pd.DataFrame)
    assert isinstance(dask_simjoin.join(TABLE, frame, 1.0, on="x"), pa.Table)


def test_polars_frames_have_the_namespace():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(COLUMNS)
    found = frame.simjoin.self_join(2.0, on="x", keep="name")
    assert isinstance(found, polars.DataFrame)
    assert found.rows() == [(0, 1, "a", "b")]
    labels = frame.simjoin.dbscan(2.0, min_samples=2, on="x")
    assert isinstance(labels, polars.Series) and labels.name == "label"
    assert labels.to_list() == [0, 0, -1]
    assert frame.simjoin.drop_near_duplicates(2.0, on="x").columns == frame.columns
    assert frame.simjoin.count_pairs(2.0, on="x") == 1


def categories(polars):
    """Return a frame with categories in several dtypes."""
    words = ["a", "b", "c", "d"]
    frame = polars.DataFrame(
        {"x": [0.0, 0.5, 9, 9.4], "word": words, "n": [1, 2, 3, 4]}
    )
    enum, own = polars.Enum([*words[::-1], "e"]), polars.Categorical
    return frame.with_columns(
        polars.col("word").cast(enum).alias("enum"),
        polars.col("word").cast(own).alias("own"),
        polars.Series("group", ["u", "u", None, "v"], own),
        polars.Series("many", [["a"], ["a", "b"], ["c"], None], polars.List(enum)),
    )


def test_categories_of_polars_are_texts():
    polars = pytest.importorskip("polars")
    frame = categories(polars)
    for name in ("enum", "own"):
        found = frame.simjoin.self_join(1.0, on="x", id=name, keep=["enum", "own"])
        assert found.rows() == [
            ("a", "b", "a", "a", "b", "b"),
            ("c", "d", "c", "c", "d", "d"),
        ]
        kinds = dict.fromkeys(("left", "right"), frame.schema[name])
        kinds |= {f"{one}_left": frame.schema[one] for one in ("enum", "own")}
        kinds |= {f"{one}_right": frame.schema[one] for one in ("enum", "own")}
        assert dict(found.schema) == kinds
        assert frame.simjoin.count_edit_pairs(name, 1) == 6
        assert frame.simjoin.count_set_pairs(name, 1.0, tokenizer="words") == 0
        assert dask_simjoin.connected_components(found)["component"].to_list() == [
            0,
            0,
            1,
            1,
        ]
    assert frame.simjoin.count_pairs(9.0, on="x", by="group", dropna=True) == 1
    assert frame.simjoin.dbscan(
        1, min_samples=1, on="x", by="group", dropna=True
    ).to_list() == [0, 0, 1]
    assert frame.simjoin.count_set_pairs("many", 0.5) == 1


@pytest.mark.parametrize("near", [0.1, 0.0])
def test_kept_categories_of_polars_keep_their_dtypes(near):
    polars = pytest.importorskip("polars")
    frame = categories(polars)
    other = frame[:1].with_columns(x=polars.lit(near))
    keep = ["enum", "own", "group", "many"]
    for found in (
        frame.simjoin.join(other, 0.05, on="x", how="left", keep=keep, id="enum"),
        frame.simjoin.join(other, 0.05, on="x", keep=keep, id="enum"),
        frame.simjoin.knn_join(k=1, on="x", keep=keep, id="enum"),
    ):
        for name in keep:
            assert found.schema[f"{name}_left"] == frame.schema[name]
            assert found.schema[f"{name}_right"] == frame.schema[name]
        assert found.schema["left"] == found.schema["right"] == frame.schema["enum"]


def test_arrow_tables_with_dictionaries_of_views():
    words = pa.array(["b", "a"]).cast(pa.string_view())
    codes = pa.array([0, 0, 1], pa.uint32())
    table = TABLE.append_column("word", pa.DictionaryArray.from_arrays(codes, words))
    found = dask_simjoin.join(table, table, 2.0, on="x", keep="word", how="left")
    assert found["word_right"].to_pylist() == ["b", "b", "b", "b", "a"]
    assert dask_simjoin.count_pairs(table, 99.0, on="x", by="word") == 1


def test_lazy_frames_of_polars_are_collected_first():
    polars = pytest.importorskip("polars")
    lazy = polars.DataFrame(COLUMNS).lazy()
    for call in (
        lambda: lazy.simjoin.self_join(2.0, on="x"),
        lambda: dask_simjoin.self_join(lazy, 2.0, on="x"),
    ):
        with pytest.raises(
            UnsupportedFrameError, match=r"Call collect\(\) on a LazyFrame first"
        ):
            call()


def test_duckdb_relations_give_arrow_tables():
    duckdb = pytest.importorskip("duckdb")
    relation = duckdb.sql("select * from (values (0.0::double), (1.0), (5.0)) t(x)")
    found = dask_simjoin.self_join(relation, 2.0)
    assert isinstance(found, pa.Table) and found.to_pydict() == {
        "left": [0],
        "right": [1],
    }


def geo_frame(crs="EPSG:4326"):
    geopandas = pytest.importorskip("geopandas")
    points = geopandas.points_from_xy([7.10, 6.96, 13.40], [50.73, 50.94, 52.52])
    return geopandas.GeoDataFrame(
        {"city": ["Bonn", "Cologne", "Berlin"]}, geometry=points, crs=crs
    )


def test_kept_points_make_a_geodataframe():
    cities = geo_frame()
    found = cities.simjoin.self_join("50 km", keep=["city", "geometry"])
    assert type(found) is type(cities)
    assert found.active_geometry_name == "geometry_left"
    assert found.crs == cities.crs == found["geometry_right"].crs
    nearest = cities.simjoin.knn_join(k=1, keep="geometry")
    assert type(nearest) is type(cities) and nearest.crs == cities.crs
    two = cities.simjoin.join(cities[["geometry"]], "50 km", keep="geometry")
    assert type(two) is type(cities)
    assert type(cities.simjoin.self_join("50 km", keep="city")) is pd.DataFrame


@pytest.mark.parametrize("interleaved", [True, False])
def test_points_of_geoarrow_are_coordinates(interleaved):
    cities = geo_frame()
    table = pa.table(
        cities.to_arrow(
            geometry_encoding="geoarrow", interleaved=interleaved, index=False
        )
    )
    found = dask_simjoin.self_join(table, "50 km", keep=["city", "geometry"])
    assert isinstance(found, pa.Table) and found["city_right"].to_pylist() == [
        "Cologne"
    ]
    extension = found.schema.field("geometry_left").metadata
    assert extension[b"ARROW:extension:name"] == b"geoarrow.point"
    assert "4326" in json.dumps(
        json.loads(extension[b"ARROW:extension:metadata"])["crs"]
    )
    rows = dask_simjoin.drop_near_duplicates(table, "50 km")
    assert rows.column_names == table.column_names and rows.num_rows == 2
