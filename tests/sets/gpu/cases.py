"""Methods with options, of which tests take some."""

from dask_simjoin.sets.methods import AllPairs, Bitmap, GroupJoin, PPJoin

METHODS = [
    "auto",
    Bitmap(),
    Bitmap(verify="thread", block=32, words=1),
    Bitmap(verify="A", block=96, words=32),
    Bitmap(verify="C", block=64, chunk_bytes=100),
    PPJoin(),
    PPJoin(words=0),
    PPJoin(verify="A", block=32),
    PPJoin(verify="B", words=4, chunk_bytes=1000),
    PPJoin(verify="warp", chunk_bytes=24),
    AllPairs(),
    AllPairs(verify="C", block=256, words=0),
    GroupJoin(),
    GroupJoin(verify="B", chunk_bytes=240),
    GroupJoin(words=0),
    PPJoin(filter="cpu"),
    PPJoin(filter="cpu", verify="A", block=64),
    PPJoin(filter="cpu", verify="B", block=32, chunk_bytes=160),
    PPJoin(filter="cpu", verify="C", block=128, chunk_bytes=400),
    AllPairs(filter="cpu", verify="C", block=32),
    AllPairs(filter="cpu", verify="warp", chunk_bytes=16),
    GroupJoin(filter="cpu"),
    GroupJoin(filter="cpu", verify="A", members="cpu"),
    GroupJoin(filter="cpu", verify="B", members="cpu", chunk_bytes=160),
]
