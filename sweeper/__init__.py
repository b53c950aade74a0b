"""A sweep's name in, Parquet out."""
