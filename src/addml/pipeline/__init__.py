"""What the commands do: read, train, score, explain, decide. Each ends in plain `Findings`."""
