"""``python -m rabbitmq_resilience`` is the console command."""

import sys

from rabbitmq_resilience.command import main

sys.exit(main())
