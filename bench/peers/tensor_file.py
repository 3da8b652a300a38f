# SPDX-License-Identifier: Apache-2.0
"""Files of safetensors, written and read with torch alone."""
import json

import torch

TYPES = {"BF16": torch.bfloat16, "F32": torch.float32, "I64": torch.int64}
NAMES = {dtype: name for name, dtype in TYPES.items()}


def write(tensors, path, dtype=None):
    """`dtype`: cast to it one by one, as they are written."""
    header, end = {}, 0
    for name, tensor in tensors.items():
        stored = dtype or tensor.dtype
        size = tensor.numel() * stored.itemsize
        header[name] = {"dtype": NAMES[stored], "shape": list(tensor.shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            stored = tensor.detach().to(dtype or tensor.dtype).contiguous().cpu()
            file.write(stored.reshape(-1).view(torch.uint8).numpy().data)


def read(path):
    import numpy
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        begin = file.tell()
    data = numpy.memmap(path, dtype="uint8", mode="r", offset=begin)
    tensors = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        tensors[name] = torch.from_numpy(data[first:last].copy()).view(TYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors
