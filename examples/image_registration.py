"""Image registration: find how a photograph was rotated, scaled, moved and relit, by `scipy.ndimage.map_coordinates`.

The photograph of the Summer Palace is scikit-learn's. `scipy.ndimage.affine_transform`, a change of light, and noise
make its copy. `tg.scipy.least_squares` fits six numbers of the transform and two of the light on a pyramid, from coarse
to fine. The Jacobian passes through the interpolation with cubic splines. The exit code is 1 unless the transform is
recovered, and the Jacobian matches finite differences. It prints the times and saves `image_registration.png`.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from matplotlib.figure import Figure
from scipy.ndimage import affine_transform, gaussian_filter, map_coordinates, spline_filter
from sklearn.datasets import load_sample_image

import tracegrad as tg

TURN, SCALE, SHIFT = np.radians(9.0), 1.07, np.array([14.0, -21.0])
MIDDLE, EDGE = np.array([[213.5], [320.0]]), 60  # of the photograph, in pixels
TRUE = {
    "matrix": SCALE * np.array([[np.cos(TURN), -np.sin(TURN)], [np.sin(TURN), np.cos(TURN)]]),
    "shift": SHIFT,
    "contrast": 0.8,
    "light": 0.1,
}


def warped(p, splines, places):
    """The image with these spline coefficients, transformed and relit, at `places`."""
    found = map_coordinates(splines, p["matrix"] @ places + p["shift"][:, None] + MIDDLE, order=3, prefilter=False)
    return p["contrast"] * found + p["light"]


def residuals(p, splines, places, twin):
    return warped(p, splines, places) - twin


def main():
    image = np.mean(load_sample_image("china.jpg"), axis=2) / 255
    offset = (MIDDLE + TRUE["shift"][:, None] - TRUE["matrix"] @ MIDDLE).ravel()
    twin = TRUE["contrast"] * affine_transform(image, TRUE["matrix"], offset, order=3) + TRUE["light"]
    twin += 0.02 * np.random.default_rng(0).normal(size=twin.shape)
    p = {"matrix": np.eye(2), "shift": np.zeros(2), "contrast": 1.0, "light": 0.0}
    scale = {"matrix": 0.01, "shift": 1.0, "contrast": 0.1, "light": 0.1}

    clock = time.perf_counter()
    for blur in (16, 8, 4, 2):
        rows, columns = np.mgrid[EDGE : image.shape[0] - EDGE : blur, EDGE : image.shape[1] - EDGE : blur]
        seen = gaussian_filter(twin, blur)[rows, columns].ravel()
        places = np.stack([rows.ravel(), columns.ravel()]) - MIDDLE
        data = spline_filter(gaussian_filter(image, blur)), places, seen
        fit = tg.scipy.least_squares(residuals, p, args=data, x_scale=scale, ftol=1e-6, disp=True)
        p = fit.x
    elapsed = time.perf_counter() - clock

    jacobian, near = tg.jacfwd(residuals)(p, *data), 1e-5
    wrong = 0.0
    for name, slope in jacobian.items():
        for k in np.ndindex(np.shape(p[name])):
            above, below = ({**p, name: np.array(p[name])} for _ in range(2))
            above[name][k] += near
            below[name][k] -= near
            differences = (residuals(above, *data) - residuals(below, *data)) / (2 * near)
            wrong = max(wrong, np.max(np.abs(slope[:, *k] - differences)) / np.max(np.abs(slope)))
    apart = np.max(np.abs(p["matrix"] - TRUE["matrix"])), np.max(np.abs(p["shift"] - TRUE["shift"]))
    print(f"four fits, first calls and all          {elapsed:6.2f} s, the last of {len(seen):,} pixels")
    print(f"Jacobian from that by differences       {wrong:.1e} of the largest")
    print(f"matrix found within                     {apart[0]:.1e}")
    print(f"shift found within                      {apart[1]:.4f} pixels")
    print(f"contrast and light                      {p['contrast']:.4f} {p['light']:.4f}")

    figure = Figure(figsize=(11, 6), layout="constrained")
    height, width = image.shape
    whole = np.stack([x.ravel() for x in np.mgrid[:height, :width]]) - MIDDLE
    back = warped(p, spline_filter(image), whole).reshape(height, width)
    pictures = {"photograph": image, "twin": twin, "difference before": image - twin, "difference after": back - twin}
    for axes, (name, picture) in zip(figure.subplots(2, 2).ravel(), pictures.items()):
        low = -0.5 if "difference" in name else 0
        axes.imshow(picture, cmap="gray", vmin=low, vmax=low + 1)
        axes.set(title=name, xticks=[], yticks=[])
    figure.savefig("image_registration.png", dpi=100)
    return 0 if fit.success and wrong < 1e-6 and apart[0] < 1e-4 and apart[1] < 0.02 else 1


if __name__ == "__main__":
    sys.exit(main())
