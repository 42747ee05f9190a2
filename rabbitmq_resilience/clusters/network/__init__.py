"""The links of a cluster: proxies that cut and slow them, and probes that tell whether they carry."""
