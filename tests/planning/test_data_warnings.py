"""Mistakes that only the data can tell: what is refused or warned of, once, and what is
not.
"""

import re
import warnings
from decimal import Decimal

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import dask_simjoin
from dask_simjoin.cluster import DBSCAN, HDBSCAN
from dask_simjoin.errors import BudgetError, ColumnError, ColumnsWarning, UnitsWarning
from dask_simjoin.neighbors import NearestNeighbors
from dask_simjoin.planning.budget import Cause, check_room, within_memory
from dask_simjoin.planning.data_warnings import SILENCE
from dask_simjoin.request.column_names import is_identifier
from dask_simjoin.request.requests import SelfJoinRequest
from tests.support.frames import computed
from tests.support.paths import PLACES as PLACES_FILE

ROWS = 3000

RANDOM = np.random.default_rng(7)

PLACES = pd.DataFrame(
    {
        "geonameid": RANDOM.permutation(ROWS),
        "latitude": RANDOM.uniform(-60, 70, ROWS),
        "longitude": RANDOM.uniform(-180, 180, ROWS),
        "population": RANDOM.integers(0, 10**6, ROWS),
    }
)

EARTH = PLACES[["latitude", "longitude"]]

PLANE = EARTH.set_axis(["x", "y"], axis=1)


def warned(kind, call, *args, **options):
    """What a computed call gives, and the one warning that it raises, at this file's
    line.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = computed(call(*args, **options))
    assert [one.category for one in caught] == [kind]
    return found, str(caught[0].message), caught[0].filename


# --- columns that nobody named
# --------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["euclidean", "haversine"])
def test_an_identifier_is_no_coordinate(lay, metric):
    frame = lay(PLACES)
    text = (
        r"all numeric columns, 'geonameid', 'latitude', 'longitude', 'population'\. But 'geonameid' "
        r"looks like an identifier\. .* such as on=\['latitude', 'longitude'\] .* id='geonameid'"
    )
    for verb in (
        "self_join",
        "count_pairs",
        "neighbor_counts",
        "dbscan",
        "plan",
        "neighbor_graph",
    ):
        with pytest.raises(ColumnError, match=text):
            getattr(frame.simjoin, verb)(0.01, metric=metric)
    with pytest.raises(ColumnError, match=text):
        frame.simjoin.knn_join(k=2, metric=metric)
    with pytest.raises(ColumnError, match=text):
        frame.simjoin.join(frame, 0.01, metric=metric)


def test_haversine_takes_two_columns_where_none_are_named():
    frame = PLACES.drop(columns="geonameid")
    with pytest.raises(
        ColumnError,
        match=r"without on= there are 3 numeric ones: .*'population'; name them",
    ):
        frame.simjoin.count_pairs(5.0, metric="haversine")
    assert EARTH.simjoin.count_pairs(30_000.0, metric="haversine") > 0


@pytest.mark.parametrize(
    "name",
    [
        "id",
        "ID",
        "shop_id",
        "shopId",
        "geonameid",
        "key",
        "index",
        "level_0",
        "Unnamed: 0",
        "id_old",
        "idx",
    ],
)
def test_names_of_identifiers(name):
    assert is_identifier(name, "i") and is_identifier(name, "u")
    assert not is_identifier(name, "f")
    frame = pd.DataFrame({name: [1, 2, 3], "x": [0.0, 1.0, 5.0]})
    assert frame.simjoin.count_pairs(2.0, on=[name, "x"]) == 1
    assert frame.simjoin.count_pairs(1.0, id=name) == 1


@pytest.mark.parametrize(
    "name",
    [
        "x",
        "f0",
        "grid",
        "grid_x",
        "centroid",
        "solid",
        "fluid",
        "hybrid",
        "width",
        "year",
        "monkey",
        7,
    ],
)
def test_names_of_coordinates(name):
    assert not is_identifier(name, "i")
    assert pd.DataFrame({name: [1, 2, 9]}).simjoin.count_pairs(1.0) == 1


def test_integers_that_outweigh_the_others_are_told(lay):
    frame = lay(PLACES)
    text = r"'population' holds integers and has [\d,]+ times the spread of the widest other column"
    with pytest.warns(ColumnsWarning, match=text):
        computed(frame.simjoin.count_pairs(0.01, id="geonameid"))
    with pytest.warns(ColumnsWarning, match=text) as caught:
        computed(frame.simjoin.join(frame, 0.01, id="geonameid"))
    assert len(caught) == 1
    # they were named
    computed(
        frame.simjoin.count_pairs(0.01, on=["latitude", "longitude", "population"])
    )


def test_numbers_of_rows_are_told(lay):
    frame = lay(EARTH.assign(number=np.arange(ROWS) // 2 + np.arange(ROWS) % 2))
    computed(frame.simjoin.count_pairs(0.01))  # these repeat
    _, text, _ = warned(
        ColumnsWarning, lay(EARTH.assign(number=range(ROWS))).simjoin.count_pairs, 0.01
    )
    assert "'number' holds integers and counts the rows" in text


def test_tables_that_may_be_transposed_are_told(lay):
    wide = pd.DataFrame(RANDOM.uniform(size=(3, 200)))
    text = "The table has 3 rows, but 200 numeric columns, which are all coordinates"
    for call in (
        lambda: lay(wide).simjoin.count_pairs(0.1),
        lambda: lay(wide).simjoin.knn_join(k=1),
        lambda: lay(wide).simjoin.dbscan(0.1),
        lambda: dask_simjoin.neighbor_counts(wide.to_numpy(), 0.1),
        lambda: DBSCAN(eps=0.1).fit(lay(wide)).labels_,
        lambda: HDBSCAN(2).fit(wide.to_numpy()).labels_,
        lambda: NearestNeighbors(n_neighbors=1).fit(wide).kneighbors()[1],
    ):
        assert warned(ColumnsWarning, call)[1].startswith(text)
    both = warned(ColumnsWarning, lay(wide).simjoin.join, lay(wide[:2]), 0.1)[1]
    assert both.startswith("The tables have 3 and 2 rows, but 200 numeric columns")
    assert "x.T instead of x" in both
    # named columns, few queries, one row, few columns
    computed(lay(wide).simjoin.count_pairs(0.1, on=list(range(200))))
    tall = pd.concat([wide] * 90, ignore_index=True)
    computed(lay(wide).simjoin.knn_join(lay(tall), 1))
    NearestNeighbors(n_neighbors=1).fit(tall).kneighbors(wide)
    dask_simjoin.count_pairs(wide[:1], 0.1)
    computed(lay(wide[list(range(10))]).simjoin.count_pairs(0.1))


def test_what_was_chosen_is_told():
    frame = dd.from_pandas(PLANE, npartitions=2)
    assert "on=['x', 'y'], all numeric columns)" in str(
        frame.simjoin.self_join(0.1).expr
    )
    assert "dimensions     2: 'x', 'y', all numeric columns" in repr(
        frame.simjoin.plan(0.1)
    )
    named = frame.simjoin.self_join(0.1, on=["x", "y"])
    assert "all numeric columns" not in str(named.expr)


@pytest.mark.parametrize(
    "values",
    [[None, Decimal(1), Decimal(2)], [1.0, 2.0, 5.0]],
    ids=["Decimal", "float"],
)
def test_numbers_as_objects_that_are_left_out_are_told(values):
    frame = pd.DataFrame(
        {
            "x": pd.Series(values, dtype=object),
            "y": [0.0, 1.0, 9.0],
            "name": list("abc"),
        }
    )
    found, text, _ = warned(ColumnsWarning, frame.simjoin.count_pairs, 1.0)
    assert found == 1
    assert (
        "'x' is of dtype object, holds numbers (" in text
        and "df.astype({'x': 'float64'})" in text
    )
    assert frame.simjoin.count_pairs(1.0, on="y") == 1  # that was named
    assert frame.drop(columns="x").simjoin.count_pairs(1.0) == 1  # texts are no numbers
    named = frame.assign(
        x=pd.Series([3, 4, 5], dtype=object), shop_id=pd.Series([7, 7, 7], dtype=object)
    )
    for options in ({"keep": "x"}, {"by": "x"}, {"id": "x"}):
        named.simjoin.self_join(1.0, **options)
    assert named.simjoin.neighbor_counts(1.0, id="x").tolist() == [1, 1, 0]


# --- units
# ----------------------------------------------------------------------------------------


def test_degrees_on_a_plane(lay):
    for on in (["latitude", "longitude"], ["longitude", "latitude"], None):
        _, text, where = warned(
            UnitsWarning, lay(EARTH).simjoin.count_pairs, 0.1, on=on
        )
        assert "so eps=0.1 means 0.1 degrees, about 11.1 km of latitude" in text
        use = re.search(r"use (metric=.*), eps='11\.1 km'\.", text)
        assert use, text
        sphere = eval(f"dict({use[1]})")
        assert sphere == {"metric": "haversine", "on": ["latitude", "longitude"]}
        computed(lay(EARTH).simjoin.count_pairs("11.1 km", **sphere))
        assert where.endswith(("test_data_warnings.py", "frames.py"))
    silence = re.search(r"To silence this warning: (.*)\.$", text)
    assert silence, text
    with warnings.catch_warnings():
        exec(silence[1], {"warnings": warnings, "dask_simjoin": dask_simjoin})
        computed(lay(EARTH).simjoin.count_pairs(0.1))
    # squares, several distances, distances that are hardly degrees
    for options, eps in (({"metric": "sqeuclidean"}, 0.1), ({}, [0.1, 0.2]), ({}, 11)):
        call = lay(EARTH).simjoin.count_pairs
        text = warned(UnitsWarning, call, eps, **options)[1]
        assert "and eps= in meters. To silence" in text and "latitude." not in text
    # without max_distance=, the largest distance is a guess
    text = warned(UnitsWarning, lay(EARTH).simjoin.knn_join, k=1)[1]
    use = "use metric='haversine', on=['latitude', 'longitude']."
    assert text.endswith(f"{use} {SILENCE}")
    # once, of two tables
    _, text, _ = warned(UnitsWarning, lay(EARTH).simjoin.join, lay(EARTH * 0.99), 0.1)
    # no degrees, other names, too few rows
    for frame in (EARTH * 1000, PLANE, EARTH[:100]):
        computed(lay(frame).simjoin.count_pairs(0.001))
    computed(lay(EARTH).simjoin.knn_join(k=1, metric="haversine"))


def test_x_before_y_on_a_sphere(lay):
    some = PLANE.assign(y=PLANE["y"] / 2)
    _, text, _ = warned(
        UnitsWarning,
        lay(some).simjoin.count_pairs,
        30_000.0,
        on=["x", "y"],
        metric="haversine",
    )
    assert "If it does, use on=['y', 'x']" in text
    computed(lay(some).simjoin.count_pairs(30_000.0, on=["y", "x"], metric="haversine"))


def test_a_plain_frame_that_has_a_pair_is_in_meters():
    """Also one that no sample shows."""
    twice = pd.concat([EARTH, EARTH[-1:] + 1e-5], ignore_index=True)
    assert twice.simjoin.count_pairs(5.0, metric="haversine") == 1
    # the pair makes no cluster
    assert twice.simjoin.dbscan(5.0, metric="haversine").max() == -1
    assert EARTH.simjoin.count_pairs(0.0, metric="haversine") == 0  # looks for copies


def test_copies_are_what_near_duplicates_are_for(lay):
    twice = pd.concat([EARTH, EARTH], ignore_index=True)
    assert (
        computed(lay(twice).simjoin.near_duplicated(5.0, metric="haversine")).sum()
        == ROWS
    )


@pytest.mark.parametrize("how", ["inner", "left", "leftanti"])
def test_degrees_as_max_distance(how):
    options = {"k": 1, "how": how, "metric": "haversine"}
    for first in ((), (EARTH * 0.99,)):
        _, text, _ = warned(
            UnitsWarning, EARTH.simjoin.knn_join, *first, max_distance=0.5, **options
        )
        assert (
            "max_distance='0.5 km'; for degrees, max_distance='0.5 deg'" in text
            and "in a sample" in text
        )
    for far in (100_000.0, "1 m", None):
        EARTH.simjoin.knn_join(max_distance=far, **options)
    EARTH[:400].simjoin.knn_join(max_distance=0.5, **options)
    PLANE.simjoin.knn_join(max_distance=1e-9, k=1, how=how)


# --- refusals that name the cause
# -----------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::dask_simjoin.errors.UnitsWarning")
def test_refusals_name_the_metric(lay):
    for on, remedy in (
        (["latitude", "longitude"], {"metric": "haversine"}),
        (
            ["longitude", "latitude"],
            {"metric": "haversine", "on": ["latitude", "longitude"]},
        ),
    ):
        for verb in ("self_join", "neighbor_graph"):
            with (
                dask.config.set({"simjoin.result-limit": "1 MiB"}),
                pytest.raises(BudgetError) as caught,
            ):
                computed(getattr(lay(EARTH).simjoin, verb)(100, on=on))
            text = str(caught.value)
            assert (
                text.count("look like degrees") == 1
                and "use metric='haversine'" in text
            )
            assert text.startswith("'latitude', 'longitude' look like degrees")
            assert [
                one.options for one in caught.value.remedies if "metric" in one.options
            ] == [remedy]


def test_a_refusal_by_memory_names_the_metric(monkeypatch):
    monkeypatch.setattr("dask_simjoin.planning.budget.free_memory", lambda: 10**7)
    monkeypatch.setattr("dask_simjoin.planning.budget.SPARE_BYTES", 0)
    with pytest.raises(
        BudgetError,
        match=r"look like degrees.*must fit in memory, and 10 MB are free\.",
    ) as caught:
        EARTH.simjoin.self_join(100)
    assert {"metric": "haversine"} in [one.options for one in caught.value.remedies]


def test_radians_for_degrees(lay):
    frame = lay(np.radians(EARTH))
    _, text, _ = warned(
        UnitsWarning, frame.simjoin.count_pairs, 2000.0, metric="haversine"
    )
    assert "'longitude' between -pi and pi, as angles in radians are" in text
    names = {"frame": frame.copy(), "numpy": np}
    exec(re.search(r"convert them: (.*?)\. To silence", text)[1], names)
    again = names["frame"].simjoin
    computed(again.count_pairs(20_000.0, metric="haversine"))
    warned(UnitsWarning, frame.simjoin.knn_join, k=1, metric="haversine")
    computed(np.degrees(frame).simjoin.count_pairs(20_000.0, metric="haversine"))


def test_a_similarity_for_a_distance(lay):
    frame = lay(
        pd.DataFrame(
            RANDOM.normal(0.3, 1.0, (ROWS, 16)), columns=[f"f{k}" for k in range(16)]
        )
    )
    _, text, _ = warned(UnitsWarning, frame.simjoin.count_pairs, 0.95, metric="cosine")
    assert "If you mean a similarity of at least 0.95, use eps=0.05." in text
    computed(frame.simjoin.count_pairs(0.05, metric="cosine"))


@pytest.mark.parametrize("verb", ["count_pairs", "dbscan", "neighbor_counts"])
def test_an_eps_within_which_everything_is(lay, verb):
    frame = lay(PLANE)
    _, text, _ = warned(UnitsWarning, getattr(frame.simjoin, verb), 1000.0)
    assert (
        "of all pairs of rows are within eps=1000.0: the largest distance of two rows "
        "is at most 38" in text
    )
    computed(getattr(frame.simjoin, verb)(1.0))


@pytest.mark.parametrize(
    ("names", "on"),
    [
        (["x", "y"], "on=['y', 'x']"),
        (["a", "b"], "on=['a', 'b']"),
        (["east", "north"], "on=['north', 'east']"),
    ],
)
def test_meters_among_degrees_are_asked_for(names, on):
    """In which order, names and values say."""
    places = np.random.default_rng(0).uniform(40, 50, (1000, 2))
    places[:, 0] += 100 * (names[0] == "east")
    frame = pd.DataFrame(places, columns=names)
    _, text, _ = warned(UnitsWarning, frame.simjoin.count_pairs, 400.0)
    assert f"eps is in meters, use {on} (latitude" in text
    assert "metric='haversine'" in text
    # nobody would ask for more than the largest distance, but for a part of it
    _, text, _ = warned(UnitsWarning, frame.simjoin.count_pairs, 8.0)
    assert "haversine" not in text


def test_a_plan_is_told_of_once():
    pairs = dd.from_pandas(PLANE, npartitions=2).simjoin.self_join(1000.0)
    with pytest.warns(UnitsWarning) as caught:
        pairs.npartitions, len(pairs), repr(pairs)
    assert len(caught) == 1


def test_where_nothing_is_in_doubt(lay):
    """Small tables, copies, degrees in OPTICS, and what OPTICS takes for no bound at
    all.
    """
    computed(lay(PLANE[:300]).simjoin.count_pairs(1000.0))
    computed(lay(PLANE * 0).simjoin.count_pairs(0.0))
    computed(lay(EARTH[:600]).simjoin.optics(1000.0))
    computed(lay(PLANE).simjoin.knn_join(k=1, max_distance=1000.0))
    computed(lay(PLANE).simjoin.k_distances(1))


# --- memory of plain frames
# -----------------------------------------------------------------------

EQUAL = pd.DataFrame({"x": np.zeros(1_000_000)})


@pytest.mark.parametrize(
    "call",
    [
        lambda frame: frame.simjoin.self_join(1.0),
        lambda frame: frame.simjoin.self_join(1.0, pairs="both", return_distance=True),
        lambda frame: frame.simjoin.join(frame, 1.0),
        lambda frame: frame.simjoin.join(frame, 1.0, how="left"),
        lambda frame: frame.simjoin.neighbor_graph(1.0),
        lambda frame: frame.simjoin.knn_join(k=900_000),
        lambda frame: frame.simjoin.knn_join(frame, k=900_000, max_distance=1.0),
    ],
)
def test_a_result_that_cannot_fit_is_refused_before_it_is_made(call):
    with pytest.raises(
        BudgetError,
        match=r"gives (an estimated|at least) [0-9,.]+ .*(pairs|rows|entries)",
    ):
        call(EQUAL)


def test_free_memory_is_what_counts(monkeypatch):
    """The configuration allows it, and this machine does not."""
    some = EQUAL[:10_000]
    monkeypatch.setattr("dask_simjoin.planning.budget.free_memory", lambda: 10**9)
    text = (
        r"eps=0\.5 gives an estimated 49\.\d million pairs or more .* 1 GB are free\. "
        r"All rows have the same coordinates, so a smaller eps does not help\. If you "
        r"only need counts, use count_pairs\(\)"
    )
    # what the result takes fits, and what is taken while it is made does not
    with pytest.raises(
        BudgetError, match=r"or more \(79\d MB, and 1\.04 GB while it is built\)"
    ):
        some.simjoin.self_join(0.5)
    with pytest.raises(BudgetError, match=text):
        some.simjoin.self_join(0.5)
    with pytest.raises(
        BudgetError, match=r"k=5000 gives at least 50,000,000 rows .*\. Use a smaller k"
    ):
        some.simjoin.knn_join(k=5000)
    assert some.simjoin.count_pairs(0.5) == 10_000 * 9_999 // 2


def test_what_is_small_asks_for_no_memory(monkeypatch):
    monkeypatch.setattr("dask_simjoin.planning.budget.free_memory", None)
    check_room(1e6, 16.0, Cause("eps=1"), True)
    with pytest.raises(TypeError):
        check_room(1e9, 16.0, Cause("eps=1"), True)


def test_memory_that_runs_out_all_the_same():
    text = (
        r"^eps=1\.0 gives a result that does not fit in memory: no more\. Use a smaller "
        r"eps\. If you only need counts, use count_pairs\(\) .* use dd\.from_pandas\("
    )
    spec = SelfJoinRequest(eps=1.0, on=["x"]).spec(EQUAL)
    with pytest.raises(BudgetError, match=text), within_memory(Cause(spec.request)):
        raise MemoryError("no more")


def test_most_of_all_pairs_of_places_are_refused_with_what_is_probably_wrong(
    monkeypatch,
):
    """Degrees compared in a plane, with meters for `eps`: however much memory there is."""
    monkeypatch.setattr("dask_simjoin.planning.budget.free_memory", lambda: 2**45)
    places = pd.read_parquet(PLACES_FILE)
    # and warns of nothing: the refusal says it all
    with pytest.raises(BudgetError) as caught:
        places.simjoin.self_join(100, on=["latitude", "longitude"], id="geonameid")
    said = str(caught.value)
    assert (
        "gives an estimated 1.03 billion pairs or more" in said
        and "15.4 GiB" in said
        and "100% of all pairs" in said
    )
    assert (
        "metric='haversine'" in said
        and "k_distances(frame, 10, on=['latitude'," in said
    )
    assert "count_pairs()" in said and "{'simjoin.result-limit': '19.3 GiB'}" in said


def test_most_of_all_pairs_are_refused_from_a_size_on(monkeypatch):
    monkeypatch.setattr("dask_simjoin.planning.data_warnings.DEAR", 1 << 20)
    x = pd.DataFrame(
        np.random.default_rng(0).uniform(size=(2000, 2)), columns=["x", "y"]
    )
    for call in (
        lambda: x.simjoin.self_join(9.0),
        lambda: x.simjoin.join(x, 9.0),
        lambda: EQUAL[:2000].simjoin.self_join(1.0),
    ):
        with pytest.raises(BudgetError, match=r"(99|100)% of all pairs") as caught:
            call()
        said = str(caught.value)
        assert "50% of all pairs or more is refused from 1 MiB on" in said
    with pytest.raises(BudgetError) as caught:
        x.simjoin.join(x, 9.0)
    assert "count_pairs" not in str(caught.value)
    assert len(x.simjoin.self_join(0.1)) > 0
    with dask.config.set({"simjoin.result-limit": "1 GiB"}), pytest.warns(UnitsWarning):
        assert len(x.simjoin.self_join(9.0)) == 2000 * 1999 // 2


def test_all_pairs_of_few_rows_are_found():
    x = pd.DataFrame(
        np.random.default_rng(0).uniform(size=(100, 2)), columns=["x", "y"]
    )
    assert len(x.simjoin.self_join(9.0)) == 100 * 99 // 2


ON = ["lat", "lon"]
