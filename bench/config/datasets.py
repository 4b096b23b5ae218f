"""The data sets by name: what the options, the loader, the augmentation and the doctor know."""

from __future__ import annotations

from dataclasses import dataclass

Channels = tuple[float, float, float]  # red, green, blue

DIGITS_SAMPLES = 1797
BUILT_IN = ("synthetic", "digits", "generated")  # need no folder
PADDING = 4  # pixels before the random crop of a 32 x 32 image (He et al. 2016, section 4.2)
_CROP = f"random crop after {PADDING} pixels of padding"


@dataclass(frozen=True, kw_only=True)
class OnDisk:
    """A data set in data_dir. Mean and deviation are of the training images, fractions of 255."""

    mean: Channels
    std: Channels
    flips: bool = True  # whether a mirrored image is of the same class
    classes: int = 0  # 0: as many as there are folders
    holds: str = ""  # what data_dir holds once torchvision has fetched it; "": what the user put in
    augmentation: tuple[str, str] = ("none", f"{_CROP}, horizontal flip")  # without and with it


# the values in common use; ImageNet's, for any folder of images, are torchvision's training's
ON_DISK = {
    "svhn": OnDisk(
        mean=(0.4377, 0.4438, 0.4728),
        std=(0.1980, 0.2010, 0.1970),
        flips=False,  # a mirrored digit is another digit, or none
        classes=10,
        holds="train_32x32.mat",
        augmentation=("none", _CROP),
    ),
    "cifar10": OnDisk(
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
        classes=10,
        holds="cifar-10-batches-py",
    ),
    "cifar100": OnDisk(
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
        classes=100,
        holds="cifar-100-python",
    ),
    "imagefolder": OnDisk(
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        augmentation=(
            "none: shorter edge resized, centre crop",
            "random resized crop, horizontal flip",
        ),
    ),
}
PUBLISHED = tuple(name for name, row in ON_DISK.items() if row.holds)
