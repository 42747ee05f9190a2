"""Let a broker's disk fail as power and hardware do, by a library in C that is preloaded, and its control program."""
