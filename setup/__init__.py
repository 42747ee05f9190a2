"""Sets the checkout up: ``.venv/`` and ``.tools/``, and nothing outside the checkout.

It runs on the system's Python before anything is installed, so it uses the standard library only; what speaks to a
container engine goes on in ``.venv``. ``setup/start`` finds that Python and starts ``python -m setup``; the Makefile
calls it.
"""
