"""The chart library of a page: Vega-Embed with Vega and Vega-Lite, bundled by vl-convert and cached on this machine."""

import contextlib
import functools
import gzip
import hashlib
import os
import sys
import zlib
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from sweeper.storage import local_disk
from trainables.cache import OpenFolderError, cache_folder, check_closed, make_closed

SNIPPET = "window.vegaEmbed = vegaEmbed;"
"""What the bundle exports."""
DIGESTS: Mapping[str, str] = {"1.9.0.post1": "94d067fef37adf4266ff263b1bdee2ac1b2eada0cf50b7261fc58cfe28a825e1"}
"""Version of vl-convert -> SHA-256 of its library. It runs in the page, so a cached one that differs is not used,
and that of another version is bundled anew in each process."""


@functools.cache
def compressed_library() -> bytes:
    """Return the JavaScript of the library, compressed by gzip: 300 kB for 900 kB.

    Bundling takes seconds, so the bundle is kept in the user's cache folder, one file for each version in `DIGESTS`.
    """
    version = metadata.version("vl-convert-python")
    folder = Path(os.path.realpath(cache_folder()))
    cached, kept = folder / f"vega-{version}.js.gz", version in DIGESTS and _is_closed(folder)
    with contextlib.suppress(OSError, EOFError, zlib.error):
        data = cached.read_bytes() if kept else b""
        if hashlib.sha256(gzip.decompress(data)).hexdigest() == DIGESTS.get(version):
            return data
    import vl_convert  # here: only pages need it, and it is large

    bundle = vl_convert.javascript_bundle(SNIPPET)  # a module, whose functions have short names that would be global
    data = gzip.compress(f'(() => {{"use strict";{bundle}}})();'.encode(), 9, mtime=0)
    if kept:
        with contextlib.suppress(OSError, OpenFolderError):  # a folder that cannot be written costs the seconds again
            make_closed(folder)
            local_disk.replace(cached, data)
    return data


def _is_closed(folder: Path) -> bool:
    """Whether no other user can change what is in the folder; if one can, a line says so."""
    try:
        check_closed(folder)
    except OpenFolderError as error:
        print(f"the chart library of pages is bundled anew in each process: {error}", file=sys.stderr)
        return False
    except OSError:
        return False
    return True
