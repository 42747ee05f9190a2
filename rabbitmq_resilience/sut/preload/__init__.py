"""Let the disks of brokers fail, by a library that is preloaded into them."""
