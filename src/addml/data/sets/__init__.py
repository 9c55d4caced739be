"""Known data sets: which there are, how their files are read, kept and downloaded. `addml.data.registry` uses them."""
