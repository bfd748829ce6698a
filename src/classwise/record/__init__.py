"""What is kept: rows, ledger, identity, remarks, the folder of a run."""
