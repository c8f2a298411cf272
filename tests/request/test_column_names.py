"""Names of latitudes, longitudes and ids."""

import numpy as np
import pandas as pd
import pytest

from dask_simjoin.errors import ColumnError
from dask_simjoin.request.column_names import latitude_and_longitude

LATITUDES = [
    ("lat", "lng"),
    ("LAT", "LON"),
    ("latitude_deg", "longitude_deg"),
    ("pickup_latitude", "pickup_longitude"),
    ("start_lat", "start_lng"),
    ("decimalLatitude", "decimalLongitude"),
    ("centroid.lat", "centroid.lon"),
    ("lat_wgs84", "lon_wgs84"),
    ("y_lat", "x_lon"),
    ("GPSLatitude", "GPSLongitude"),
    ("Start Latitude", "Start Longitude"),
    ("pickuplatitude", "pickuplongitude"),
    ("intptlat", "intptlon"),
    ("lat1", "long1"),
    ("dec", "ra"),
    ("dec_deg", "ra_deg"),
    ("DE_ICRS", "RA_ICRS"),
    ("DEJ2000", "RAJ2000"),
    ("declination", "right_ascension"),
]


NO_LATITUDES = [
    ("latency", "longest"),
    ("lateral", "belongs"),
    ("latest", "along"),
    ("decision", "radius"),
    ("decimal", "rate"),
    ("flat", "salon"),
    ("template", "talon"),
    ("lat_acc", "long_acc"),
    ("dec_error", "ra_error"),
    ("x", "y"),
    (0, 1),
]


@pytest.mark.parametrize("names", LATITUDES, ids=str)
def test_names_of_latitude_and_longitude(names):
    assert latitude_and_longitude(names) == (0, 1)
    assert latitude_and_longitude(names[::-1]) == (1, 0)
    frame = pd.DataFrame(np.zeros((2, 2)), columns=list(names))
    options = {"metric": "haversine"}
    assert frame.simjoin.count_pairs(1, on=list(names), **options) == 1
    with pytest.raises(ColumnError, match="are in the opposite order; use on="):
        frame.simjoin.count_pairs(1, on=list(names[::-1]), **options)


@pytest.mark.parametrize("names", NO_LATITUDES, ids=str)
def test_names_of_other_columns(names):
    assert latitude_and_longitude(names) is latitude_and_longitude(names[::-1]) is None


def test_suggested_coordinates_are_all_numeric_columns_but_the_id():
    frame = pd.DataFrame(
        {"sensor_id": [1, 2], "temp": [0.5, 1], "rpm": [7, 8], "volt": [1.0, 2]}
    )
    text = r"on=\['temp', 'rpm', 'volt'\] \('rpm' holds integers: leave it out if they"
    with pytest.raises(ColumnError, match=text):
        frame.simjoin.count_pairs(1)
    with pytest.raises(ColumnError, match=text):
        frame.simjoin.join(frame, 1)
    with pytest.raises(ColumnError, match=r"'f5'\] \('rpm', 'f5' hold integers: leave"):
        frame.assign(f5=pd.array([1, 2], "Int32")).simjoin.count_pairs(1)
    with pytest.raises(ColumnError, match=r"on=\['temp'\]\. If each row has its own"):
        frame[["sensor_id", "temp"]].simjoin.count_pairs(1)
    places = frame.rename(columns={"temp": "lat", "volt": "lon"})
    with pytest.raises(ColumnError, match=r"on=\['lat', 'lon'\] \('rpm' does not"):
        places.simjoin.count_pairs(1)
