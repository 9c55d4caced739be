"""From what people have (arrays, frames, files) to Rows that the training loop can take blocks of."""
