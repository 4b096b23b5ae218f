"""The data sets by name: what the options, the loader, the augmentation and the doctor know."""

from __future__ import annotations

from dataclasses import dataclass

Channels = tuple[float, float, float]  # red, green, blue

DIGITS_SAMPLES = 1797
BUILT_IN = ("synthetic", "digits", "generated")  # need no folder


@dataclass(frozen=True, kw_only=True)
class OnDisk:
    """A data set in data_dir. Mean and deviation are of the training images, fractions of 255."""

    mean: Channels
    std: Channels
    flips: bool = True  # whether a mirrored image is of the same class
    classes: int = 0  # 0: as many as there are folders
    holds: str = ""  # what data_dir holds once it is there; "": what the user put into it

    @property
    def is_published(self) -> bool:
        """Whether torchvision knows where to get it; it is kept in memory then."""
        return bool(self.holds)


# the values in common use; ImageNet's, for any folder of images, are torchvision's training's
ON_DISK = {
    "svhn": OnDisk(
        mean=(0.4377, 0.4438, 0.4728),
        std=(0.1980, 0.2010, 0.1970),
        flips=False,  # a mirrored digit is another digit, or none
        classes=10,
        holds="train_32x32.mat",
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
    "imagefolder": OnDisk(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
}
PUBLISHED = tuple(name for name, row in ON_DISK.items() if row.is_published)
