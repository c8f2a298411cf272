"""An example for the help of each command."""

EXAMPLES = {
    "self-join": "places.parquet --eps 0.5 --on x,y --return-distance -o pairs.parquet",
    "join": "homes.csv --other shops.csv --eps '2 km' --metric haversine --on lat,lon -o pairs.csv",
    "knn": "homes.csv --other shops.csv -k 3 --on x,y -o nearest.csv",
    "closest-pairs": "places.parquet -n 10 --on x,y -o closest.csv",
    "counts": "places.parquet --eps 0.5 --on x,y -o counted.parquet",
    "count-pairs": "places.parquet --eps 0.1,0.5,1 --on x,y",
    "dedup": "places.parquet --eps 0.01 --on x,y -o kept.parquet",
    "dbscan": "places.parquet --eps 0.5 --min-samples 5 --on x,y -o labeled.parquet",
    "optics": "places.parquet --max-eps 2 --on x,y -o ordered.parquet",
    "hdbscan": "places.parquet --min-cluster-size 10 --on x,y -o labeled.parquet",
    "k-distances": "places.parquet -k 5 --on x,y -o distances.parquet",
    "plan": "places.parquet --eps 0.5 --on x,y",
    "sets self-join": "articles.csv --on title --threshold 0.8 -o pairs.csv",
    "sets join": "old.csv --other new.csv --on title --threshold 0.8 -o pairs.csv",
    "sets counts": "articles.csv --on title --threshold 0.8 -o counted.csv",
    "sets count-pairs": "articles.csv --on title --threshold 4/5 --tokenizer qgrams:3",
    "sets dedup": "articles.csv --on title --threshold 0.8 -o kept.csv",
    "sets plan": "articles.csv --on title --threshold 0.8",
    "strings self-join": "people.csv --on name -k 2 -o pairs.csv",
    "strings join": "old.csv --other new.csv --on name --similarity 0.9 -o pairs.csv",
    "strings counts": "people.csv --on name -k 1 -o counted.csv",
    "strings count-pairs": "people.csv --on name -k 2 --by postcode",
    "strings dedup": "people.csv --on name -k 1 -o kept.csv",
    "strings plan": "people.csv --on name -k 2",
    "compile": "--verbs self_join,dbscan --dims 2,3",
    "index make": "places.csv --eps 0.5 --on x,y --id id --path grown",
    "index update": "grown tonight.csv --if-exists replace -o changes.parquet",
    "index pairs": "grown -o pairs.parquet",
    "index changes": "grown --since 1 -o changes.parquet",
    "index history": "grown",
    "index check": "grown",
}
"""Command -> its arguments in the example."""


def example_of(command: str) -> str:
    """Return the line of the help that shows a command in use."""
    return f"Example: dask-simjoin {command} {EXAMPLES[command]}"
