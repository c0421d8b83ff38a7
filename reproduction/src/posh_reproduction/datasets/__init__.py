"""The data sets that the experiments add to those of posh."""

from __future__ import annotations

from posh.datasets._registry import Entry
from posh_reproduction.datasets import gist, knnh, patches, sentences

__all__ = ["ENTRIES"]

ENTRIES: dict[str, Entry] = {
    "mnist-gist": Entry(
        63_004, 6996, 512, True, "GIST features of the MNIST images", gist.build_mnist_gist()
    ),
    "mnist-gist-128": Entry(
        63_004,
        6996,
        512,
        True,
        "GIST features of the MNIST images enlarged to 128 pixels, which give the paper's values",
        gist.build_mnist_gist(128),
    ),
    "cifar10-gist": Entry(
        54_000, 6000, 512, True, "GIST features of the CIFAR-10 images", gist.build_cifar10_gist()
    ),
    "cifar10-patches": Entry(
        patches.N_BASE,
        patches.N_QUERIES,
        patches.N_FEATURES,
        False,
        "8 x 8 colour patches of the CIFAR-10 images, reduced by PCA",
        patches.build_cifar10_patches(),
    ),
    "cifar10-patches-768": Entry(
        patches.N_LARGE,
        patches.N_QUERIES,
        768,
        False,
        "pixels of 16 x 16 colour patches of the CIFAR-10 images",
        patches.build_large_patches(),
    ),
    "wordnet-minilm": Entry(
        sentences.N_TEXTS - sentences.N_QUERIES,
        sentences.N_QUERIES,
        sentences.N_FEATURES,
        False,
        "embeddings of WordNet's glosses by all-MiniLM-L6-v2",
        sentences.build_sentences(),
    ),
    "wordnet-ood": Entry(
        sentences.N_TEXTS,
        sentences.N_QUERIES,
        sentences.N_FEATURES,
        False,
        "embeddings of WordNet's glosses, and of its words as queries, which are unlike glosses",
        sentences.build_words(),
    ),
    "mnist-gist-knnh": knnh.build_entry(512, "GIST of MNIST", knnh.name_train_and_test("mnist_gist512")),
    "cifar10-gist-knnh": knnh.build_entry(
        512, "GIST of CIFAR-10", knnh.name_train_and_test("cifar10_gist512")
    ),
    "cifar10-vgg": knnh.build_entry(4096, "VGG fc7 of CIFAR-10", knnh.name_train_and_test("cifar10_vggfc7")),
    "labelme-gist": knnh.build_entry(512, "GIST of LabelMe", knnh.name_train_and_test("labelme_gist512")),
    "labelme-vgg": knnh.build_entry(4096, "VGG fc7 of LabelMe", knnh.name_train_and_test("labelme_vggfc7")),
    "places205": knnh.build_entry(128, "features of Places205", knnh.name_places205()),
}
"""Data sets by name, for the entry point ``posh.datasets``."""
