"""Many runs -> one table."""
