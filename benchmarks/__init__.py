"""Benchmarks. `make benchmark` measures speed against rivals in the same run; the other modules run by themselves."""
