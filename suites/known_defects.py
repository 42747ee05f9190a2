"""What RabbitMQ itself is known to break, where more than one suite expects it. (Hangs: ``suites.partitions``.)"""

from __future__ import annotations

from faults.scenario import Expectation
from invariants.verdict import Verdict

#: A node that has just lost its peers may wait 7 s for a connection before it pauses (kernel(6), net_setuptime). Its
#: mirrors are promoted meanwhile, and what they confirm is gone when it comes back. The broker means not to confirm
#: there, as the reference says of its channels.
CONFIRMED_IN_A_MINORITY = Expectation(
    broker="<4",
    verdict=Verdict.INVALID,
    invariant="no_loss",
    reference="rabbitmq/rabbitmq-server#9523",
    always=False,
)

#: Brokers that decide before each has seen the whole split decide again and again, and restart the sides in turn.
DECIDES_TOO_SOON = Expectation(
    broker="<4.3",
    verdict=Verdict.INVALID,
    invariant="partition_mode",
    also=("recovery", "availability", "throughput", "no_loss", "order"),
    reference="rabbitmq/rabbitmq-server#928",
    always=False,
)

#: A node that loses its peers while it starts, after a pause: it does not pause again but serves for itself, and stays
#: parted when the others are there again (the reference); or its mirrors are not started any more.
PARTED_WHILE_STARTING = Expectation(
    broker="<4.3",
    verdict=Verdict.INVALID,
    invariant="recovery",
    also=("availability", "throughput", "partition_mode"),
    reference="rabbitmq/rabbitmq-server#2175",
    always=False,
    log=r"RabbitMQ is asked to start((?!Server startup complete).)*not responding",
)

#: What a consumer had in hand when its queue's leader died comes again from the new one. A channel that outlives this
#: acknowledges by the numbers of the old leader, and the new one goes on counting some as not acknowledged: the channel
#: then says that it has none. They stay until the consumer goes.
COUNTED_AS_UNACKED = Expectation(
    broker="<4",
    verdict=Verdict.INVALID,
    invariant="unacked",
    reference="rabbitmq/rabbitmq-server#4004",
    always=False,
)
