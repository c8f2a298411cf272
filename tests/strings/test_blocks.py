import re

import numpy as np
import pandas as pd

from dask_simjoin.planning.size_blocks import size_blocks
from dask_simjoin.sets.chunks import parcels_of
from dask_simjoin.strings.blocks import (
    chunks_of,
    codes_bound,
    gather_block,
    gather_texts,
    read_texts,
    summarise_texts,
)
from dask_simjoin.strings.requests import EditSelfJoinRequest

FRAME = pd.DataFrame({"t": pd.Series(["ab", None, "", "ab", "\u00e9"], dtype="object")})
SPEC = EditSelfJoinRequest(on="t", k=1).spec(FRAME.iloc[:0])


def test_each_text_has_an_end():
    read = read_texts(FRAME, SPEC)
    assert read["sets"]["offsets"].tolist() == [0, 3, 3, 4, 7, 9]
    assert read["sets"]["codes"].tolist() == [97, 98, 0, 0, 97, 98, 0, 0xE9, 0]
    assert read["missing"].tolist() == [False, True, False, False, False]
    assert codes_bound(read["sets"]) == 0xEA


def test_equal_texts_are_one():
    (chunk,) = chunks_of([read_texts(FRAME, SPEC)])
    assert chunk["weights"].tolist() == [1, 1, 2]
    assert chunk["order"].tolist() == [2, 4, 0, 3, 1]


def test_parcels_make_the_same_blocks():
    read = read_texts(FRAME, SPEC)
    blocks = size_blocks(
        np.array([3, -1, 1, 3, 2]), np.zeros(5, np.uint64), np.ones(5), 2
    )
    parcels = parcels_of(read, 0, blocks)
    rows = [
        gather_block(FRAME.iloc[:0], SPEC, parcel)["position"].tolist()
        for parcel in parcels
    ]
    assert sorted(row for some in rows for row in some) == [0, 1, 2, 3, 4]
    assert len(gather_block(FRAME.iloc[:0], SPEC, None)["weights"]) == 0


def test_codes_of_blocks_are_small():
    for text, bits in (("\u00ff", 8), ("\u0100", 16), ("\U00010000", 32)):
        (parcel,) = parcels_of(
            read_texts(FRAME.assign(t=text), SPEC), 0, size_blocks(*[np.ones(1)] * 3, 1)
        )
        block = gather_block(FRAME.iloc[:0], SPEC, parcel)
        assert block["tokens"].dtype.itemsize * 8 == bits
        assert block["tokens"].tolist() == [ord(text), 0]


def test_samples_keep_the_order_of_codes():
    frame = pd.DataFrame({"t": ["ba", None, "c"]})
    spec = EditSelfJoinRequest(on="t", k=1).spec(frame.iloc[:0])
    summaries = [summarise_texts(frame, number, spec, True, 2) for number in range(2)]
    assert summaries[0].missing == 1
    (sampled,), bound = gather_texts([summaries])
    assert sampled.sizes.tolist() == [3, -1, 2] * 2
    assert sampled.sets["codes"].tolist() == [98, 97, 0, 99, 0] * 2
    assert np.unique(sampled.hashes).size == 3 and bound > 0x10FFFF


def test_a_report_names_the_rule_and_the_groups():
    frame = pd.DataFrame({"t": ["ab", "ac", None], "g": [1, 1, 2]})
    plan = frame.simjoin.edit_plan("t", 1, transpositions=True, by="g")
    text = str(plan)
    assert (
        plan.title == "Plan of a self-join by edit distance, k=1, with transpositions"
    )
    assert "1 of 3 rows: 1 misses 't' or 'g'" in text
    assert re.search(r"\n  by +g\n", text) and "by length" in text
    assert plan.characters == 4 and plan.pairs == 1
