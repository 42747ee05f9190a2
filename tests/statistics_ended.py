"""The end of a broker's statistics, which nothing starts again but a start of the broker.

Those of 3.10.8 fail while there are two connections to one peer (rabbit_net:dist_info/0), as after a cut, and their
supervisor gives up where that lasts: the broker tells nothing of itself any more.
"""

from __future__ import annotations

import re

#: The process that fails first, and the supervisor that gives up.
_STATISTICS, _SUPERVISOR = "rabbit_mgmt_external_stats", "rabbit_mgmt_agent_sup"

#: For ``rabbitmqctl eval``: ends them as such failures do, and tells whether they have ended.
END = (
    f"[begin catch exit(whereis({_STATISTICS}), kill), timer:sleep(2) end || _ <- lists:seq(1, 500)], "
    f"whereis({_SUPERVISOR}) =:= undefined."
)
#: For ``rabbitmqctl eval``: whether they have ended.
HAVE_ENDED = f"whereis({_STATISTICS}) =:= undefined."
#: What the broker's log has of it.
TRACE = re.compile(rf"supervisor: {{local,{_SUPERVISOR}}}\n.*errorContext: shutdown\n.*reached_max_restart_intensity")
