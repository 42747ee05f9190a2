"""Many runs of one scenario over values of its fields: axes, order, table, comparison."""
