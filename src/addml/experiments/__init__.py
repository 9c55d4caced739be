"""The paper's experiments, and the same comparison on anybody's table.

protocol (which rows are learned from and tested on) -> methods (who takes part) -> together, fitting (how they are
fitted) -> runs (one row of a Parquet file each) -> tables, statistics, figures -> page.
"""
