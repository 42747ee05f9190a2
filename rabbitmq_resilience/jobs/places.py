"""Where things are in the pods of a Job, and what its two containers are called.

One plays; the other waits beside it until what was recorded has been fetched, whatever became of the first.
"""

from __future__ import annotations

PLAYER = "play"
KEEPER = "keep"

#: A volume of the pod, which both have.
WORK = "/scratch"
RESULTS = f"{WORK}/results"
#: Beside them, and not among what comes back.
PARCEL = f"{WORK}/parcel.tar.gz"
FETCHED = f"{WORK}/fetched"
BEGUN = f"{WORK}/begun"
ENDED = "ended.json"

#: The cluster file, its certificates and the fault files.
SCENARIOS = "/scenarios"
CLUSTER_FILE = f"{SCENARIOS}/cluster.yaml"
CA = f"{SCENARIOS}/ca.pem"
#: For the player alone.
CREDENTIALS = "/credentials"

#: After pytest's limit, for scenarios to heal what they broke.
HEALS_WITHIN_S = 120.0
#: After pytest's end, for somebody to fetch what was recorded.
FETCHED_WITHIN_S = 900.0
#: The same where the pod is being ended, as by a drained node: until its grace is over, which goes on after healing.
FETCHED_AT_LAST_WITHIN_S = 60.0
GRACE_S = HEALS_WITHIN_S + FETCHED_AT_LAST_WITHIN_S
