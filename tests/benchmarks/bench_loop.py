"""Images per second of our training loop beside a plain one with torchvision and a DataLoader, in one run.

python -m tests.benchmarks.bench_loop [--device cuda] [--steps 200] [--precision bfloat16] [--channels-last]

Both train VJE with a ResNet-18 on random images of 32x32 in batches of 64, MoCo v2 views without blur. The plain loop
transforms image by image in as many workers as there are cores, as is usual; its start-up is not counted.
"""

import argparse

import torch

from search_spaces._protocols import MOCO_V2_VIEWS
from tests.benchmarks.loops import RANDOM, WARM_UP, WORKERS, our_speed, plain_speed, register_random_images
from trainables.config import resolve

BATCH = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--channels-last", action="store_true")
    arguments = parser.parse_args()
    device, steps = torch.device(arguments.device), arguments.steps
    dataset = register_random_images((WARM_UP + steps) * BATCH)
    config = resolve(
        {
            "method": "vje", "dataset": RANDOM, "encoder": "resnet18", "batch_size": BATCH, "lr": 5e-6,
            "weight_decay": 5e-6, "precision": arguments.precision, "channels_last": arguments.channels_last,
            **MOCO_V2_VIEWS,
        }
    )  # fmt: skip
    print(f"{device}, torch {torch.__version__}, {arguments.precision}, {steps} steps, {WORKERS} workers")
    ours = our_speed([config], device, steps)
    print(f"ours  {ours:8.1f} images/s")
    plain = plain_speed(config, dataset, device, steps)
    print(f"plain {plain:8.1f} images/s\nratio {ours / plain:.2f}")


if __name__ == "__main__":
    main()
