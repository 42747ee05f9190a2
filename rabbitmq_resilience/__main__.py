"""Run the console command as ``python -m rabbitmq_resilience``."""

import sys

from rabbitmq_resilience.command import main

sys.exit(main())
