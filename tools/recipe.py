"""Whether conda's tools read conda/recipe.yaml: `python -m tools.recipe`, with
py-rattler-build.
"""

from tools import ROOT


def main():
    """Parse the recipe by its schema, fill its variables in, and print what it needs."""
    from rattler_build import Stage0Recipe, VariantConfig  # needed by this check alone

    recipe = Stage0Recipe.from_file(str(ROOT / "conda" / "recipe.yaml"))
    (variant,) = recipe.render(VariantConfig())
    found = variant.recipe.to_dict()
    print(found["package"], *found["requirements"]["run"], sep="\n")


if __name__ == "__main__":
    main()
