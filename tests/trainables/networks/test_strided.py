"""Strided convolutions: sizes of maps, and images of any size. Shapes: B images of C channels, H by W; D features."""

import pytest
import torch
from torch import nn

from trainables.networks.strided import strided_convnet, strided_deconv

WIDTHS = {(1, 32, 32): [32, 64, 128, 256], (3, 8, 8): [32, 64], (1, 28, 28): [32, 64], (2, 5, 9): []}
"""Image shape -> channels of the maps. Sides of 28 pixels are halved to 14 and 7; odd ones not at all."""


@pytest.mark.parametrize("shape", WIDTHS)
def test_encoder_and_decoder_have_the_same_maps_in_opposite_order(shape: tuple[int, int, int]) -> None:
    encoder, decoder = strided_convnet(shape, 32, 6), strided_deconv(6, shape)
    down = [(layer.in_channels, layer.out_channels) for layer in encoder if isinstance(layer, nn.Conv2d)]
    up = [(layer.out_channels, layer.in_channels) for layer in decoder if isinstance(layer, nn.ConvTranspose2d)]
    assert [out for _, out in down] == WIDTHS[shape] and up == down[::-1]
    z_BD = encoder(torch.randn(4, *shape))
    assert z_BD.shape == (4, 6) and decoder(z_BD).shape == (4, *shape)
    assert z_BD.min() < 0 < z_BD.max()


def test_smallest_map_of_the_papers_images_has_two_pixels_a_side() -> None:
    encoder = strided_convnet((1, 32, 32), 32, 6)
    linear = [(layer.in_features, layer.out_features) for layer in encoder if isinstance(layer, nn.Linear)]
    assert linear == [(256 * 2 * 2, 256), (256, 6)]
