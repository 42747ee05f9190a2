"""Write an image of one layer as an archive that containerd imports: ``mkimage.py NAME LAYER.tar OUT.tar [CONFIG]``."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path

name, layer, out = sys.argv[1:4]
with Path(layer).open("rb") as file:
    digest = hashlib.file_digest(file, "sha256").hexdigest()
config = json.dumps(
    {
        "architecture": "amd64",
        "os": "linux",
        "config": json.loads(sys.argv[4]) if len(sys.argv) > 4 else {},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [{"created_by": "set-up"}],
    }
).encode()
config_name = f"{hashlib.sha256(config).hexdigest()}.json"
manifest = json.dumps([{"Config": config_name, "RepoTags": [name], "Layers": [f"{digest}/layer.tar"]}]).encode()
with tarfile.open(out, "w") as archive:
    for member, content in ((config_name, config), ("manifest.json", manifest)):
        info = tarfile.TarInfo(member)
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    archive.add(layer, f"{digest}/layer.tar")
