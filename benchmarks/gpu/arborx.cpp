// Times jobs of ArborX on points of a file, on a GPU.
//
//   arborx JOB FILE EPS K REPEAT
//
// FILE: rows of DIMS float32.  JOB: mst (K: min_samples), dbscan or dbscan-boxes (EPS, K),
// hdbscan (K), knn (K).  One line per run: seconds from points in GPU memory to the
// result there, and a number that describes the result.
//
// Compile it once per number of dimensions with CMake: find_package of Kokkos (with CUDA)
// and ArborX 2, an executable arborx-3 that links ArborX::ArborX, and DIMS=3.

#include <ArborX.hpp>
#include <ArborX_DBSCAN.hpp>
#include <ArborX_HDBSCAN.hpp>
#include <ArborX_MinimumSpanningTree.hpp>
#include <Kokkos_Core.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#ifndef DIMS
#define DIMS 3
#endif

using Space = Kokkos::Cuda;
using Memory = Space::memory_space;
using Point = ArborX::Point<DIMS, float>;
using Points = Kokkos::View<Point *, Memory>;

Points read_points(char const *path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  size_t const n = in.tellg() / sizeof(Point);
  in.seekg(0);
  Points points(Kokkos::view_alloc(Kokkos::WithoutInitializing, "points"), n);
  auto host = Kokkos::create_mirror_view(points);
  in.read(reinterpret_cast<char *>(host.data()), n * sizeof(Point));
  Kokkos::deep_copy(points, host);
  return points;
}

double tree(Space const &space, Points const &points, int k, double &weight) {
  Kokkos::Timer timer;
  ArborX::Experimental::MinimumSpanningTree<Memory> mst(space, points, k);
  space.fence();
  double const seconds = timer.seconds();
  auto edges = mst.edges;
  Kokkos::parallel_reduce(
      "weight", Kokkos::RangePolicy(space, 0, edges.size()),
      KOKKOS_LAMBDA(int i, double &sum) { sum += edges(i).weight; }, weight);
  return seconds;
}

double clusters(Space const &space, Points const &points, double eps, int k,
                bool boxes, double &found) {
  ArborX::DBSCAN::Parameters how;
  how.setImplementation(boxes
                            ? ArborX::DBSCAN::Implementation::FDBSCAN_DenseBox
                            : ArborX::DBSCAN::Implementation::FDBSCAN);
  Kokkos::Timer timer;
  Kokkos::View<int *, Memory> labels("labels", 0);
  ArborX::dbscan(space, points, eps, k, labels, how);
  space.fence();
  double const seconds = timer.seconds();
  // a label is the number of a row of the cluster: count rows whose own it is
  Kokkos::parallel_reduce(
      "count", Kokkos::RangePolicy(space, 0, labels.size()),
      KOKKOS_LAMBDA(int i, double &sum) { sum += labels(i) == i; }, found);
  return seconds;
}

double hierarchy(Space const &space, Points const &points, int k,
                 double &found) {
  Kokkos::Timer timer;
  auto dendrogram = ArborX::Experimental::hdbscan(space, points, k);
  space.fence();
  double const seconds = timer.seconds();
  auto heights = dendrogram._parent_heights;
  Kokkos::parallel_reduce(
      "heights", Kokkos::RangePolicy(space, 0, heights.size()),
      KOKKOS_LAMBDA(int i, double &sum) { sum += heights(i); }, found);
  return seconds;
}

struct Index {
  template <class Query, class Value, class Out>
  KOKKOS_FUNCTION void operator()(Query const &, Value const &value,
                                  Out const &out) const {
    out(value.index);
  }
};

double nearest(Space const &space, Points const &points, int k, double &found) {
  Kokkos::Timer timer;
  ArborX::BoundingVolumeHierarchy bvh(
      space, ArborX::Experimental::attach_indices(points));
  Kokkos::View<int *, Memory> indices("indices", 0), offsets("offsets", 0);
  bvh.query(space, ArborX::Experimental::make_nearest(points, k + 1),
            Index{}, indices, offsets);
  space.fence();
  double const seconds = timer.seconds();
  Kokkos::parallel_reduce(
      "sum", Kokkos::RangePolicy(space, 0, points.size()),
      KOKKOS_LAMBDA(int i, double &sum) {
        for (int j = offsets(i); j < offsets(i + 1); ++j) {
          double d2 = 0;
          for (int c = 0; c < DIMS; ++c) {
            double const g = double(points(i)[c]) - points(indices(j))[c];
            d2 += g * g;
          }
          sum += Kokkos::sqrt(d2);
        }
      },
      found);
  return seconds;
}

int main(int argc, char **argv) {
  Kokkos::ScopeGuard guard;
  if (argc != 6)
    return 2;
  std::string const job = argv[1];
  double const eps = std::atof(argv[3]);
  int const k = std::atoi(argv[4]), repeat = std::atoi(argv[5]);
  Space space;
  auto points = read_points(argv[2]);
  for (int run = 0; run < repeat; ++run) {
    double seconds = 0, found = 0;
    if (job == "mst")
      seconds = tree(space, points, k, found);
    else if (job == "hdbscan")
      seconds = hierarchy(space, points, k, found);
    else if (job == "knn")
      seconds = nearest(space, points, k, found);
    else
      seconds = clusters(space, points, eps, k, job == "dbscan-boxes", found);
    std::printf("RUN seconds %.6f found %.9g\n", seconds, found);
  }
}
