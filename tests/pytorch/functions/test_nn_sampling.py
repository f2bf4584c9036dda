"""Resampling, sampling at points, windows, label losses and Fourier transforms, against SciPy and plain loops."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.fft
import scipy.ndimage

import tracegrad as tg
from tracegrad import nn
from tracegrad.nn import functional as F

RNG = np.random.default_rng(0)
IMAGE = np.arange(1.0, 5.0).reshape(1, 1, 2, 2)


def close(x: Any, y: Any, rtol: float = 1e-10) -> None:
    np.testing.assert_allclose(np.asarray(x.detach() if isinstance(x, tg.Tensor) else x), y, rtol=rtol, atol=1e-12)


def differentiable(function: Any, *arrays: Any) -> None:
    """Derivatives agree with differences, and a traced call with an eager one."""
    inputs = [tg.tensor(x, requires_grad=True) for x in arrays]
    assert tg.autograd.gradcheck(function, inputs)
    close(tg.trace(function)(*inputs), function(*inputs).detach().numpy())


# -- interpolate ---------------------------------------------------------------------------------------------------
def test_bilinear_images_are_those_of_the_documentation_of_pytorch() -> None:
    x = tg.tensor(IMAGE)
    rows = [[1, 1.25, 1.75, 2], [1.5, 1.75, 2.25, 2.5], [2.5, 2.75, 3.25, 3.5], [3, 3.25, 3.75, 4]]
    close(F.interpolate(x, scale_factor=2, mode="bilinear")[0, 0], rows)
    aligned = np.linspace(1, 2, 4) + np.linspace(0, 2, 4)[:, None]
    close(F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)[0, 0], aligned)
    close(nn.UpsamplingBilinear2d(scale_factor=2)(x)[0, 0], aligned)
    close(nn.Upsample(scale_factor=2)(x)[0, 0], np.kron(IMAGE[0, 0], np.ones((2, 2))))
    close(nn.UpsamplingNearest2d(size=(1, 4))(x)[0, 0], [[1, 1, 2, 2]])


@pytest.mark.parametrize(("mode", "offset"), [("nearest", 0.0), ("nearest-exact", 0.5)])
def test_nearest_places(mode: str, offset: float) -> None:
    x = np.arange(7.0).reshape(1, 1, 7)
    for size in (3, 5, 11):
        expected = np.minimum(np.floor((np.arange(size) + offset) * 7 / size), 6)
        close(F.interpolate(tg.tensor(x), size, mode=mode)[0, 0], expected)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize(("mode", "rank"), [("linear", 1), ("bilinear", 2), ("trilinear", 3)])
def test_linear_resampling_is_that_of_scipy(mode: str, rank: int, align_corners: bool) -> None:
    x = RNG.normal(size=(2, 3, *(4, 5, 3)[:rank]))
    sizes = (6, 3, 7)[:rank]
    axes = [
        np.arange(m) * (n - 1) / (m - 1) if align_corners else (np.arange(m) + 0.5) * n / m - 0.5
        for n, m in zip(x.shape[2:], sizes)
    ]
    points = np.meshgrid(*axes, indexing="ij")
    expected = [[scipy.ndimage.map_coordinates(c, points, order=1, mode="nearest") for c in image] for image in x]
    close(F.interpolate(tg.tensor(x), sizes, mode=mode, align_corners=align_corners), expected)


@pytest.mark.parametrize("antialias", [False, True])
def test_cubic_resampling_has_the_weights_of_keys(antialias: bool) -> None:
    x = np.broadcast_to(np.arange(12.0), (1, 1, 12, 12)).copy()
    y = F.interpolate(tg.tensor(x), (24, 24), mode="bicubic", antialias=antialias).numpy()
    if antialias:
        close(y[0, 0, 6, 6:-6], ((np.arange(24) + 0.5) / 2 - 0.5)[6:-6])
    close(F.interpolate(tg.ones(1, 1, 9, 9), (4, 5), mode="bicubic", antialias=antialias), np.ones((1, 1, 4, 5)))
    weights = [-0.10546875, 0.87890625, 0.26171875, -0.03515625]  # Keys's kernel with a = -0.75, at 1/4
    impulse = F.interpolate(tg.eye(8)[None, None], (16, 8), mode="bicubic")[0, 0, 7]
    close(impulse[2:6], weights)


def test_a_smooth_reduction_averages_all_pixels() -> None:
    x = RNG.normal(size=(1, 1, 1, 8))
    y = F.interpolate(tg.tensor(x), (1, 2), mode="bilinear", antialias=True)
    kernel = 1 - np.abs(np.arange(8) + 0.5 - 2) / 4
    kernel = np.where(np.arange(8) < 6, kernel, 0)
    close(y[0, 0, 0, 0], kernel @ x[0, 0, 0] / kernel.sum())


def test_area_resampling_is_a_mean() -> None:
    x = RNG.normal(size=(1, 2, 6, 4))
    close(F.interpolate(tg.tensor(x), (3, 2), mode="area"), x.reshape(1, 2, 3, 2, 2, 2).mean((3, 5)))


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic", "area"])
def test_resampling_has_right_derivatives(mode: str) -> None:
    differentiable(lambda x: F.interpolate(x, (5, 4), mode=mode), RNG.normal(size=(1, 2, 3, 5)))


def test_options_of_resampling() -> None:
    x = tg.arange(5.0).reshape(1, 1, 5)
    exact = F.interpolate(x, scale_factor=1.5, mode="linear")
    again = F.interpolate(x, scale_factor=1.5, mode="linear", recompute_scale_factor=True)
    assert exact.shape == again.shape == (1, 1, 7)
    close(exact[0, 0], np.clip((np.arange(7) + 0.5) / 1.5 - 0.5, 0, 4))
    close(again[0, 0], np.clip((np.arange(7) + 0.5) * 5 / 7 - 0.5, 0, 4))
    assert F.interpolate(x.float(), 3, mode="linear").dtype == tg.float32
    with pytest.raises(ValueError, match="only one of size or scale_factor should be defined"):
        F.interpolate(x, 3, 2)
    with pytest.raises(ValueError, match="either size or scale_factor should be defined"):
        F.interpolate(x)
    with pytest.raises(ValueError, match="align_corners option can only be set"):
        F.interpolate(x, 3, align_corners=True)
    with pytest.raises(NotImplementedError, match="Got 3D input, but bilinear mode needs 4D input"):
        F.interpolate(x, 3, mode="bilinear")
    with pytest.raises(ValueError, match="must have the same number of spatial dimensions"):
        F.interpolate(x, (3, 3))


# -- grid_sample ---------------------------------------------------------------------------------------------------
SCIPY_MODES = {
    "zeros": ("grid-constant", "grid-constant"),
    "border": ("nearest", "nearest"),
    "reflection": ("reflect", "mirror"),
}


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding", SCIPY_MODES)
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("rank", [2, 3])
def test_samples_at_points_are_those_of_scipy(rank: int, mode: str, padding: str, align_corners: bool) -> None:
    sizes = (4, 5, 3)[:rank]
    x, grid = RNG.normal(size=(2, 3, *sizes)), RNG.uniform(-1.7, 1.7, size=(2, *(3,) * rank, rank))
    y = F.grid_sample(tg.tensor(x), tg.tensor(grid), mode, padding, align_corners)
    for k in range(2):
        points = [
            (grid[k, ..., rank - 1 - d] + 1) / 2 * (n - 1)
            if align_corners
            else ((grid[k, ..., rank - 1 - d] + 1) * n - 1) / 2
            for d, n in enumerate(sizes)
        ]
        for c in range(3):
            expected = scipy.ndimage.map_coordinates(
                x[k, c], points, order=int(mode == "bilinear"), mode=SCIPY_MODES[padding][align_corners]
            )
            close(y[k, c], expected)


def test_bicubic_samples_at_the_places_of_a_resampling_are_equal() -> None:
    x = tg.tensor(RNG.normal(size=(1, 2, 5, 6)))
    identity = tg.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    for align in (False, True):
        grid = F.affine_grid(identity, (1, 2, 7, 9), align)
        expected = F.interpolate(x, (7, 9), mode="bicubic", align_corners=align)
        close(F.grid_sample(x, grid, "bicubic", "border", align), expected.numpy())


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("padding", SCIPY_MODES)
def test_samples_have_right_derivatives(mode: str, padding: str) -> None:
    x, grid = RNG.normal(size=(1, 2, 4, 5)), RNG.uniform(-1.3, 1.3, size=(1, 3, 2, 2))
    differentiable(lambda x, g: F.grid_sample(x, g, mode, padding, False), x, grid)


def test_grids_of_affine_maps() -> None:
    theta = RNG.normal(size=(2, 3, 4))
    differentiable(lambda t: F.affine_grid(t, (2, 1, 2, 3, 2), True), theta)
    grid = F.affine_grid(tg.tensor(theta), (2, 1, 2, 3, 2), True)
    close(grid[1, 1, 0, 1], theta[1] @ [1, -1, 1, 1])
    with pytest.raises(NotImplementedError, match="only supports 4D and 5D sizes"):
        F.affine_grid(tg.tensor(theta), (2, 1, 2), False)
    with pytest.raises(ValueError, match="expected mode to be"):
        F.grid_sample(tg.ones(1, 1, 2, 2), tg.zeros(1, 1, 1, 2), "cubic")
    with pytest.warns(UserWarning, match="Default grid_sample behavior has changed"):
        F.grid_sample(tg.ones(1, 1, 2, 2), tg.zeros(1, 1, 1, 2))


# -- windows -------------------------------------------------------------------------------------------------------
def test_windows_as_columns_are_those_of_numpy_and_fold_is_the_adjoint() -> None:
    x = RNG.normal(size=(2, 3, 6, 7))
    columns = F.unfold(tg.tensor(x), (2, 3))
    windows = np.lib.stride_tricks.sliding_window_view(x, (2, 3), (2, 3))
    close(columns, windows.transpose(0, 1, 4, 5, 2, 3).reshape(2, 18, 25))
    options = {"kernel_size": (2, 3), "dilation": (2, 1), "padding": (1, 2), "stride": (2, 3)}
    columns = nn.Unfold(**options)(tg.tensor(x))
    y = RNG.normal(size=columns.shape)
    image = nn.Fold((6, 7), **options)(tg.tensor(y))
    close((columns.numpy() * y).sum(), (x * image.numpy()).sum())
    differentiable(lambda x: F.unfold(x, 2, padding=1, stride=2), x[:1, :1])
    differentiable(lambda y: F.fold(y, (3, 4), 2), RNG.normal(size=(1, 8, 6)))
    close(F.fold(F.unfold(tg.ones(1, 3, 3), 2), (3, 3), 2)[0], [[1, 2, 1], [2, 4, 2], [1, 2, 1]])
    with pytest.raises(RuntimeError, match="its components must be at least one"):
        F.unfold(tg.ones(1, 1, 2, 2), 3)
    with pytest.raises(RuntimeError, match="to be divisible by the product of kernel_size"):
        F.fold(tg.ones(1, 3, 4), (3, 3), 2)


# -- losses --------------------------------------------------------------------------------------------------------
def paths_to(labels: tuple[int, ...], time: int, classes: int) -> Any:
    """All sequences of classes that become these labels without repeats and blanks."""
    for path in itertools.product(range(classes), repeat=time):
        if tuple(k for k, _ in itertools.groupby(path) if k) == labels:
            yield path


@pytest.mark.parametrize("labels", [(), (1,), (1, 2), (1, 1), (2, 1)])
def test_the_loss_of_alignments_is_the_sum_over_all_paths(labels: tuple[int, ...]) -> None:
    logs = np.log(RNG.dirichlet(np.ones(3), size=(4, 2)))
    total = sum(np.exp(sum(logs[t, 0, k] for t, k in enumerate(path))) for path in paths_to(labels, 4, 3))
    short = sum(np.exp(sum(logs[t, 1, k] for t, k in enumerate(path))) for path in paths_to((1,), 2, 3))
    targets = tg.tensor([*labels, 1])
    loss = F.ctc_loss(tg.tensor(logs), targets, (4, 2), (len(labels), 1), reduction="none")
    close(loss, [-np.log(total), -np.log(short)])
    mean = nn.CTCLoss()(tg.tensor(logs), targets, tg.tensor([4, 2]), tg.tensor([len(labels), 1]))
    close(mean, np.mean(loss.numpy() / [max(len(labels), 1), 1]))
    close(
        F.ctc_loss(tg.tensor(logs[:, 0]), tg.tensor(labels, dtype=tg.int64), 4, len(labels), reduction="sum"), loss[0]
    )


def test_impossible_alignments_and_derivatives() -> None:
    logits = RNG.normal(size=(3, 2, 4))
    targets = tg.tensor([[1, 1, 1], [1, 2, 3]])

    def loss(x: Any) -> Any:
        return F.ctc_loss(F.log_softmax(x, -1), targets, (3, 3), (3, 2), zero_infinity=True)

    differentiable(loss, logits)
    both = F.ctc_loss(F.log_softmax(tg.tensor(logits), -1), targets, (3, 3), (3, 2), reduction="none")
    assert both[0] == np.inf
    with pytest.raises(RuntimeError, match="blank must be in label range"):
        F.ctc_loss(tg.tensor(logits), targets, (3, 3), (3, 2), blank=4)


def test_margin_losses_are_sums_over_classes() -> None:
    x, y = RNG.normal(size=(3, 4)), np.array([1, 0, 3])
    weight = np.array([1.0, 2.0, 0.5, 3.0])
    for p in (1, 2):
        expected = [
            sum(weight[k] * max(0, 0.7 - row[k] + row[i]) ** p for i in range(4) if i != k) / 4 for row, k in zip(x, y)
        ]
        loss = F.multi_margin_loss(tg.tensor(x), tg.tensor(y), p, 0.7, tg.tensor(weight), reduction="none")
        close(loss, expected)
    close(nn.MultiMarginLoss()(tg.tensor(x[0]), tg.tensor(1)), F.multi_margin_loss(x[:1], y[:1]))
    targets = np.array([[1, 3, -1, 0], [2, -1, -1, -1], [-1, 1, 1, 1]])
    expected = []
    for row, target in zip(x, targets):
        labels = list(itertools.takewhile(lambda k: k >= 0, target))
        others = [i for i in range(4) if i not in labels]
        expected.append(sum(max(0, 1 - (row[j] - row[i])) for j in labels for i in others) / 4)
    close(F.multilabel_margin_loss(tg.tensor(x), tg.tensor(targets), reduction="none"), expected)
    z = (x > 0).astype(float)
    bce = -(z * np.log(1 / (1 + np.exp(-x))) + (1 - z) * np.log(1 / (1 + np.exp(x))))
    close(F.multilabel_soft_margin_loss(tg.tensor(x), tg.tensor(z)), bce.mean())
    close(nn.MultiLabelSoftMarginLoss(tg.tensor(weight))(tg.tensor(x), tg.tensor(z)), (bce * weight).mean())
    differentiable(lambda x: F.multi_margin_loss(x, tg.tensor(y)), x)
    differentiable(lambda x: F.multilabel_margin_loss(x, tg.tensor(targets)), x)
    differentiable(lambda x: F.multilabel_soft_margin_loss(x, tg.tensor(z)), x)


def test_triplets_with_a_distance() -> None:
    a, b, c = (tg.tensor(RNG.normal(size=(3, 4))) for _ in range(3))
    for swap in (False, True):
        close(
            F.triplet_margin_with_distance_loss(a, b, c, swap=swap), F.triplet_margin_loss(a, b, c, swap=swap).numpy()
        )
    far = F.triplet_margin_with_distance_loss(a, b, c, distance_function=lambda x, y: (x - y).abs().sum(-1), margin=9.0)
    assert far > 0


# -- bags, bilinear, and random ones -----------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_rows(mode: str) -> None:
    table = RNG.normal(size=(6, 3))
    index, offsets = np.array([0, 2, 2, 5, 1, 2]), np.array([0, 3, 3, 5])
    bags = [[0, 2, 2], [], [5, 1], [2]]
    reduce = getattr(np, mode)
    expected = np.array([reduce(table[bag], axis=0) if bag else np.zeros(3) for bag in bags])
    close(F.embedding_bag(tg.tensor(index), tg.tensor(table), tg.tensor(offsets), mode=mode), expected)
    ends = tg.tensor([*offsets, 6])
    close(F.embedding_bag(index, table, ends, mode=mode, include_last_offset=True), expected)
    close(
        F.embedding_bag(index.reshape(2, 3), table, mode=mode),
        [reduce(table[row], 0) for row in ([0, 2, 2], [5, 1, 2])],
    )
    skipped = np.array([reduce(table[bag], axis=0) if bag else np.zeros(3) for bag in ([0], [], [5, 1], [])])
    close(F.embedding_bag(index, table, offsets, mode=mode, padding_idx=2), skipped)
    differentiable(lambda w: F.embedding_bag(tg.tensor(index), w, tg.tensor(offsets), mode=mode), table)
    bag = nn.EmbeddingBag.from_pretrained(tg.tensor(table), mode=mode)
    close(bag(tg.tensor(index), tg.tensor(offsets)), expected)


def test_weights_of_samples_in_bags() -> None:
    table, weights = RNG.normal(size=(6, 3)), RNG.normal(size=(2, 2))
    index = np.array([[0, 1], [4, 4]])
    expected = [w @ table[row] for row, w in zip(index, weights)]
    close(F.embedding_bag(index, table, mode="sum", per_sample_weights=weights), expected)
    with pytest.raises(NotImplementedError, match="only supported for mode='sum'"):
        F.embedding_bag(index, table, per_sample_weights=weights)
    with pytest.raises(ValueError, match="offsets has to be a 1D Tensor but got None"):
        F.embedding_bag(index[0], table)


def test_bilinear_forms() -> None:
    x, y, w = RNG.normal(size=(2, 3)), RNG.normal(size=(2, 4)), RNG.normal(size=(5, 3, 4))
    close(F.bilinear(tg.tensor(x), tg.tensor(y), tg.tensor(w), tg.ones(5)), np.einsum("ni,kij,nj->nk", x, w, y) + 1)


def test_relaxed_choices() -> None:
    tg.manual_seed(0)
    logits = tg.tensor(np.log([0.2, 0.3, 0.5]))
    choice = F.gumbel_softmax(logits.expand(20000, 3), hard=True)
    close(choice.mean(0), [0.2, 0.3, 0.5], 0.05)
    x = tg.zeros(4, 3, requires_grad=True)

    def step() -> Any:
        hard = F.gumbel_softmax(x, tau=0.5, hard=True, dim=0)
        return (hard * tg.arange(3.0)).sum(), hard

    traced = tg.trace(step)
    for _ in range(3):
        loss, hard = traced()
        assert hard.detach().sum(0).tolist() == pytest.approx([1.0] * 3)
    (grad,) = tg.autograd.grad(loss, x)
    assert abs(grad.sum(0)).max() < 1e-12
    assert traced.cache_info().traces == 1


def test_alpha_dropout_has_the_mean_and_the_variance_of_its_input() -> None:
    tg.manual_seed(0)
    x = tg.randn(200, 300)
    y = nn.AlphaDropout(0.3)(x)
    assert abs(float(y.mean())) < 0.02
    assert float(y.var()) == pytest.approx(1, abs=0.02)
    whole = nn.FeatureAlphaDropout(0.5)(tg.ones(4, 5, 6, 6))
    assert (whole == whole[:, :, :1, :1]).all()
    assert nn.AlphaDropout().eval()(x) is x


# -- Fourier transforms ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_transforms_along_a_dimension_are_those_of_scipy(name: str, norm: str | None) -> None:
    x = RNG.normal(size=(3, 6))
    x = x if name in ("rfft", "ihfft") else x + 1j * RNG.normal(size=(3, 6))
    for n, dim in ((None, -1), (5, 0), (8, 1)):
        close(getattr(tg.fft, name)(tg.tensor(x), n, dim, norm), getattr(scipy.fft, name)(x, n, dim, norm))
    assert tg.autograd.gradcheck(getattr(tg.fft, name), [tg.tensor(x, requires_grad=True)])


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft"])
def test_transforms_over_dimensions_are_those_of_scipy(name: str) -> None:
    x = RNG.normal(size=(2, 4, 6))
    close(getattr(tg.fft, f"{name}2")(tg.tensor(x)), getattr(scipy.fft, f"{name}2")(x))
    close(getattr(tg.fft, f"{name}n")(tg.tensor(x)), getattr(scipy.fft, f"{name}n")(x))
    close(getattr(tg.fft, f"{name}n")(tg.tensor(x), (3, 5)), getattr(scipy.fft, f"{name}n")(x, (3, 5)))
    close(getattr(tg.fft, f"{name}n")(tg.tensor(x), dim=(0, 1)), getattr(scipy.fft, f"{name}n")(x, axes=(0, 1)))


def test_frequencies_shifts_and_dtypes() -> None:
    close(tg.fft.fftfreq(5, 0.1), np.fft.fftfreq(5, 0.1))
    close(tg.fft.rfftfreq(6), np.fft.rfftfreq(6))
    x = tg.tensor(RNG.normal(size=(3, 4)))
    close(tg.fft.ifftshift(tg.fft.fftshift(x)), x.numpy())
    close(tg.fft.fftshift(x, 1), np.fft.fftshift(x.numpy(), 1))
    assert tg.fft.fft(x.float()).dtype == tg.complex64
    assert tg.fft.fftfreq(4, dtype=tg.float32).dtype == tg.float32
