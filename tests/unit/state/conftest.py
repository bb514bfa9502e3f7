from __future__ import annotations

import sys
from pathlib import Path

# The importlib mode of pytest puts no test folder on the path; state_kit.py is beside this file.
sys.path.append(str(Path(__file__).parent))
