"""Cut and slow the links of a cluster by proxies, and probe whether the links carry data."""
