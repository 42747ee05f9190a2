"""Name the paths in the pod of a Job, its two containers, and its time limits.

The player runs pytest. The keeper waits until the records have been fetched, whether the player still runs or not.
"""

from __future__ import annotations

PLAYER = "play"
KEEPER = "keep"

#: A volume of the pod that both containers mount.
WORK = "/scratch"
RESULTS = f"{WORK}/results"
#: Outside the results, so these do not come back.
PARCEL = f"{WORK}/parcel.tar.gz"
FETCHED = f"{WORK}/fetched"
BEGUN = f"{WORK}/begun"
ENDED = "ended.json"

#: The cluster file, its certificates and the fault files.
SCENARIOS = "/scenarios"
CLUSTER_FILE = f"{SCENARIOS}/cluster.yaml"
CA = f"{SCENARIOS}/ca.pem"
#: Mounted only in the player.
CREDENTIALS = "/credentials"

#: How long scenarios may take after pytest's limit to heal what they broke.
HEALS_WITHIN_S = 120.0
#: How long the records are kept after pytest's end, to be fetched.
FETCHED_WITHIN_S = 900.0
#: The same if the pod is being ended, as by a drained node: its grace period covers healing and then this time.
FETCHED_AT_LAST_WITHIN_S = 60.0
GRACE_S = HEALS_WITHIN_S + FETCHED_AT_LAST_WITHIN_S
