"""Speed, as ratios against rivals measured in the same run: `make benchmark`."""
