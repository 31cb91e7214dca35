"""`python -m cxrlab` is the command `cxrlab`."""

import sys

from cxrlab.cli.main import main

sys.exit(main())
