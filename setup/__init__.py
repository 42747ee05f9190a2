"""Set up the checkout: ``.venv/`` and ``.tools/``, and nothing outside of the checkout.

Set-up runs on the system's Python before anything is installed, so it uses only the standard library. Work that needs
a container engine goes on in ``.venv``. The Makefile calls ``setup/start``, which finds a Python and runs
``python -m setup``.
"""
