"""The paper's experiments: `python -m research table2`, from a clone of the repository; not part of the package.

datasets -> plans (who runs on what) -> experiment (fits and times) -> run_store (one row of a Parquet file a run) ->
tables, statistics, figures -> reproduce (files and the page of results). The protocol and the rivals are the
package's, where `addml compare` uses them too.
"""
