"""`python -m joyrlinf_core.plan.rules` prints `docs/rules.md`."""

import sys

from joyrlinf_core.plan.rules.pages import document

sys.stdout.write(document())
