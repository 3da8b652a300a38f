# SPDX-License-Identifier: Apache-2.0
"""A rank under torchrun that meets the others and says so: seconds since BENCH_START, when torchrun was started."""
import json
import os
import time

import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
print(json.dumps({"rank": dist.get_rank(), "seconds": time.time() - float(os.environ["BENCH_START"])}), flush=True)
dist.destroy_process_group()
