"""Settings for all tests."""

from hypothesis import settings

# Machines that run tests are shared and slow at times: time is no property of the code here.
settings.register_profile("hybridlat", deadline=None)
settings.load_profile("hybridlat")
