"""What programs of others print is read, and their pairs are compared with ours."""

import sys

import numpy as np
import pytest

from benchmarks.gpu import rival_programs as rivals
from benchmarks.gpu import tree_peers

ROWS = np.array([[0.0], [1.0], [2.0], [10.0], [10.5], [12.0]], np.float32)
EPS = 1.0
PAIRS = [(0, 1), (1, 2), (3, 4)]

PROGRAM = """#!{python}
import os, struct, sys
print("chatter", os.environ["RIVAL_DIMS"], *sys.argv[1:])
for number in range(int(os.environ["RIVAL_REPEATS"])):
    print(f"RUN kernels {{0.5 + number}} total {{seconds}} found 12 stored 12", file=sys.stderr)
if "RIVAL_PAIRS" in os.environ:
    with open(os.environ["RIVAL_PAIRS"], "wb") as file:
        for pair in {pairs}:
            file.write(struct.pack("2i", *pair))
sys.exit({status})
"""


def both(pairs):
    """Pairs in both orders, and each row with itself."""
    rows = range(len(ROWS))
    return np.array(
        [*pairs, *((b, a) for a, b in pairs), *zip(rows, rows, strict=True)], np.int32
    )


def ours():
    return rivals.codes(*np.array(PAIRS).T, len(ROWS))


@pytest.fixture
def program(tmp_path):
    """Write a program, and return how it is called and its file."""

    def written(pairs=PAIRS, status=0, seconds="0.25", lists=True):
        file = tmp_path / "rival"
        text = PROGRAM.format(
            python=sys.executable, pairs=both(pairs).tolist(), status=status
        )
        file.write_text(text.replace("{seconds}", seconds))
        file.chmod(0o755)
        return rivals.Program(
            "Rival", "rival", "{path} {eps} {dims}", "float32", lists
        ), file

    return written


def run(program, tmp_path, repeat=3):
    return rivals.measured(*program, tmp_path / "rows", 1, EPS, repeat)


def test_runs_after_the_first_are_medians_and_pairs_are_read(program, tmp_path):
    result, pairs = run(program(), tmp_path)
    assert result["kernels"] == {"seconds": 2.5, "runs": [1.5, 2.5, 3.5]}
    assert result["whole"]["seconds"] == 0.25
    assert result["ordered"] == 12
    assert result["all stored"] and result["repeated"]
    assert (pairs == both(PAIRS)).all()


def test_a_long_run_is_the_only_one(program, tmp_path):
    result, _ = run(program(seconds="5.0"), tmp_path)
    assert result["kernels"]["runs"] == [0.5]
    assert not result["repeated"]


def test_programs_that_only_count_write_no_pairs(program, tmp_path):
    result, pairs = run(program(lists=False), tmp_path)
    assert pairs is None
    assert result["all stored"] is None


def test_failures_say_so(program, tmp_path):
    with pytest.raises(rivals.ProgramError, match="exit 3: chatter"):
        run(program(status=3), tmp_path)


def test_lines_of_gds_join_are_read():
    runs = rivals.runs_of(
        "\nKERNELS 12.5 ms FOUND 1000 BATCHES 3 FITS 1\nKERNELS 13 ms FOUND 1000 "
        "BATCHES 3 FITS 0"
    )
    assert runs == [
        rivals.Run(0.0125, None, 1000, 1000),
        rivals.Run(0.013, None, 1000, 0),
    ]
    text = "\nTime to index (not counted in the time): 0.5\nTime: 2.25\n"
    assert rivals.whole_of(text) == 2.75
    with pytest.raises(rivals.ProgramError, match="no times"):
        rivals.whole_of("Time: none")


def test_pairs_are_counted_once_and_without_rows_and_themselves():
    left, right = both(PAIRS).T
    assert (rivals.codes(left, right, len(ROWS)) == [1, 8, 22]).all()


@pytest.mark.parametrize(
    ("pairs", "false", "missed", "refuted", "farthest"),
    [
        (PAIRS, 0, 0, 0, 0.0),
        (PAIRS[:2], 0, 1, 0, 0.5),
        ([*PAIRS, (4, 5)], 1, 0, 0, 0.5),
        ([], 0, 3, 0, 0.5),
        ([(0, 2), *PAIRS[1:]], 1, 1, 0, 1.0),
    ],
)
def test_false_and_missed_pairs(pairs, false, missed, refuted, farthest):
    theirs = rivals.codes(*both(pairs).T, len(ROWS))
    found = rivals.compared(theirs, ours(), ROWS, EPS)
    assert found == {
        "pairs": len(pairs),
        "false": false,
        "missed": missed,
        "refuted": refuted,
        "farthest": farthest,
    }


def test_float64_refutes_us_where_we_are_wrong(monkeypatch):
    monkeypatch.setattr(rivals, "VALUES", 1)  # one pair at a time
    theirs = rivals.codes(*np.array([*PAIRS, (4, 5)]).T, len(ROWS))
    assert rivals.compared(theirs, ours(), ROWS, 2.0)["refuted"] == 1
    assert rivals.compared(ours()[:1], ours(), ROWS, 0.25)["refuted"] == 2


def test_every_program_is_called_with_its_arguments():
    for program in rivals.PROGRAMS:
        arguments = program.arguments.format(path="rows", eps="0.5", dims=16).split()
        assert {"rows", "0.5"} <= set(arguments)
        assert "{" not in program.file.format(dims=16)


def test_rows_are_moved_only_if_differences_stay_exact():
    rows = (
        np.random.default_rng(0).integers(-1000, 1000, (50, 3)).astype(np.float32)
        / 2048
    )
    found = rivals.moved(rows)
    assert (found.min(axis=0) == 0).all()
    np.testing.assert_array_equal(found[1:] - found[:-1], rows[1:] - rows[:-1])
    rows[0, 0], rows[1, 0] = -1e8, 1e-8
    assert rivals.moved(rows) is rows


TREES = """#!{python}
import os, sys
job, file, eps, k, repeat = sys.argv[1:]
size = os.path.getsize(file)
print("chatter", job, eps, k)
for number in range(int(repeat)):
    print(f"RUN seconds {{[9, 1, 3, 2][number]}} found {{size}}")
sys.exit({status})
"""


@pytest.mark.parametrize("status", [0, 3])
def test_a_peer_of_trees_reads_the_points_and_its_times_are_summarised(
    tmp_path, status
):
    file = tmp_path / "arborx-3"
    file.write_text(TREES.format(python=sys.executable, status=status))
    file.chmod(0o755)
    points = np.zeros((5, 3), np.float32)
    (peer,) = tree_peers.peers_of("spanning_tree", 0.1)
    found = tree_peers.measured(peer, points, tmp_path, repeat=3)
    if status:
        assert found["failed"].startswith("exit 3")
        return
    assert found == {"median": 2, "seconds": [1, 3, 2], "first": 9, "found": 60}
