"""A small CelebA on disk in the true format: JPEG files of 178x218 pixels and the text files that torchvision reads."""

import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.folder_files import picture
from tests.published_files import md5

ATTRIBUTES = re.findall(
    r"\w+",
    "5_o_Clock_Shadow Arched_Eyebrows Attractive Bags_Under_Eyes Bald Bangs Big_Lips Big_Nose Black_Hair Blond_Hair "
    "Blurry Brown_Hair Bushy_Eyebrows Chubby Double_Chin Eyeglasses Goatee Gray_Hair Heavy_Makeup High_Cheekbones Male "
    "Mouth_Slightly_Open Mustache Narrow_Eyes No_Beard Oval_Face Pale_Skin Pointy_Nose Receding_Hairline Rosy_Cheeks "
    "Sideburns Smiling Straight_Hair Wavy_Hair Wearing_Earrings Wearing_Hat Wearing_Lipstick Wearing_Necklace "
    "Wearing_Necktie Young",
)
"""The header of the published file."""
PARTS = (0, 2, 0, 1, 0, 2, 0, 1, 2, 0)
"""The part of each file: 0 training, 1 validation, 2 test. The published files are in the order of their parts."""


def write_celeba(root: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """Write `root/celeba` with ten images of random attributes, men and women in turns within a part; make torchvision
    expect these files' checksums while the test runs. Returns the attributes, 1 or -1, `[10, 40]`."""
    from torchvision.datasets import CelebA

    folder, rng = root / CelebA.base_folder, np.random.default_rng(8)
    (folder / "img_align_celeba").mkdir(parents=True)
    names = [f"{i + 1:06}.jpg" for i in range(len(PARTS))]
    for name in names:
        picture(rng, 218, 178).save(folder / "img_align_celeba" / name, quality=95)
    attributes = rng.choice([-1, 1], (len(PARTS), len(ATTRIBUTES)))
    for i, part in enumerate(PARTS):
        attributes[i, ATTRIBUTES.index("Male")] = 1 if PARTS[:i].count(part) % 2 else -1
    _write(folder / "list_attr_celeba.txt", names, attributes, header=f"{len(names)}\n{' '.join(ATTRIBUTES)} \n")
    _write(folder / "list_eval_partition.txt", names, np.array(PARTS)[:, None])
    _write(folder / "identity_CelebA.txt", names, rng.integers(1, 10178, (len(names), 1)))
    _write(folder / "list_bbox_celeba.txt", names, rng.integers(0, 178, (len(names), 4)), "10\nx_1 y_1 width height\n")
    landmarks = "10\n" + " ".join(f"{axis}{i}" for i in range(5) for axis in "xy") + "\n"
    _write(folder / "list_landmarks_align_celeba.txt", names, rng.integers(0, 178, (len(names), 10)), landmarks)
    sums = [(key, md5(folder / file) if file.endswith(".txt") else sum, file) for key, sum, file in CelebA.file_list]
    monkeypatch.setattr(CelebA, "file_list", sums)
    return attributes


def pack_celeba(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the folder of images by the archive that is published; its checksum is expected from then on."""
    from torchvision.datasets import CelebA

    archive = folder / "img_align_celeba.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for path in sorted((folder / "img_align_celeba").iterdir()):
            packed.write(path, f"img_align_celeba/{path.name}")
            path.unlink()
    (folder / "img_align_celeba").rmdir()
    sums = [(key, md5(archive) if file == archive.name else sum, file) for key, sum, file in CelebA.file_list]
    monkeypatch.setattr(CelebA, "file_list", sums)


def _write(path: Path, names: list[str], values: np.ndarray, header: str = "") -> None:
    """The published files pad their columns with spaces."""
    rows = (f"{name} {' '.join(f'{value:2}' for value in row)}\n" for name, row in zip(names, values, strict=True))
    path.write_text(header + "".join(rows))
