"""The paper's experiments: `python -m research table2`, from a clone of the repository; not part of the package.

datasets -> plans (methods and sets) -> experiment (fits and times) -> run_store (one row of a Parquet file per run) ->
tables, statistics, figures -> reproduce (files and the page of results). The protocol and the rivals are shared with
`addml compare`, in the package.
"""
