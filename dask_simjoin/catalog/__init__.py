"""Names that options take: methods, libraries of data frames, and dtypes of columns."""
