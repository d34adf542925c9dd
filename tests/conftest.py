"""Settings for all tests, and the fake engine offered as another package offers one."""

import os
import sys
from pathlib import Path

from hypothesis import settings

# Machines that run tests are shared and slow at times: time is no property of the code here.
settings.register_profile("hybridlat", deadline=None)
settings.load_profile("hybridlat")

ROOT = Path(__file__).resolve().parents[1]
PLUGIN = ROOT / "tests" / "fakes" / "plugin"
sys.path.append(str(PLUGIN))
# Processes that tests start find the package, the tests' fakes and the plug-in as they do here.
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(PLUGIN)])
