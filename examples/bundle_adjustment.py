"""Bundle adjustment: five cameras and 544 points of the Villa del Balbianello from photographs that GTSAM ships.

The model is Bundler's: a focal length and two coefficients of radial distortion for each camera. The example perturbs
Bundler's solution, and `scipy.optimize.least_squares` finds it again. `tg.vmap(tg.jacfwd)` computes the blocks of the
sparse Jacobian. The exit code is 1 unless the reprojection error is at most Bundler's, and the fit is SciPy's with
finite differences. It prints times and errors, and saves `bundle_adjustment.png`.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.image import imread
from scipy.optimize import least_squares
from scipy.sparse import csr_matrix
from scipy.spatial.transform import Rotation

import tracegrad as tg


def read(path):
    """Cameras (rotation vector, position, focal length, distortion), points, colours, and the views of points."""
    numbers = np.array(" ".join(path.read_text().splitlines()[1:]).split(), float)
    n, m = numbers[:2].astype(int)
    given = numbers[2 : 2 + 15 * n].reshape(n, 15)
    turned = Rotation.from_matrix(given[:, 3:12].reshape(n, 3, 3)).as_rotvec()
    points, colours, seen, at = [], [], [], 2 + 15 * n
    for point in range(m):
        points.append(numbers[at : at + 3])
        colours.append(numbers[at + 3 : at + 6])
        views = int(numbers[at + 6])
        seen += [(view[0], point, *view[2:]) for view in numbers[at + 7 : at + 7 + 4 * views].reshape(views, 4)]
        at += 7 + 4 * views
    seen = np.array(seen)
    return np.hstack([turned, given[:, 12:], given[:, :3]]), np.array(points), np.array(colours) / 255, seen


def project(camera, point):
    """Image of a point in a camera, in pixels from the middle of the photograph, y up."""
    turn, place, focal, distortion = camera[:3], camera[3:6], camera[6], camera[7:]
    angle = np.sqrt(turn @ turn)
    axis = turn / angle
    turned = (  # Rodrigues
        np.cos(angle) * point + np.sin(angle) * np.cross(axis, point) + (1 - np.cos(angle)) * (axis @ point) * axis
    )
    x, y, z = turned + place
    flat = np.stack([-x / z, -y / z])
    square = flat @ flat
    return focal * (1 + distortion[0] * square + distortion[1] * square**2) * flat


views = tg.vmap(project)
slopes = tg.trace(tg.vmap(tg.jacfwd(project, argnums=(0, 1))), tiered=False)  # the first call compiles


def main():
    folder = Path(importlib.util.find_spec("gtsam").origin).parent / "Data"
    cameras, points, colours, seen = read(folder / "Balbianello.out")
    camera, point, pixels = seen[:, 0].astype(int), seen[:, 1].astype(int), seen[:, 2:]
    count, unknowns = len(seen), cameras.size + points.size

    def residuals(scene):
        return views(scene["cameras"][camera], scene["points"][point]) - pixels

    # element of the sparse Jacobian: two rows for each view, nine columns for its camera and three for its point
    columns = np.hstack([9 * camera[:, None] + np.arange(9), cameras.size + 3 * point[:, None] + np.arange(3)])
    places = np.arange(2 * count).repeat(12), columns.repeat(2, axis=0).ravel()

    def jacobian(scene):
        blocks = np.concatenate(slopes(scene["cameras"][camera], scene["points"][point]), axis=2)
        return csr_matrix((blocks.ravel(), places), shape=(2 * count, unknowns))

    def error(scene):
        return np.sqrt(np.mean(np.sum(residuals(scene) ** 2, axis=1)))

    bundler = {"cameras": cameras, "points": points}
    rng = np.random.default_rng(0)
    size = np.std(points)
    shaking = size * np.array([0.01] * 6 + [4, 0, 0])
    start = {
        "cameras": cameras * [1, 1, 1, 1, 1, 1, 1, 0, 0] + shaking * rng.normal(size=cameras.shape),
        "points": points + 0.02 * size * rng.normal(size=points.shape),
    }
    clock = time.perf_counter()
    blocks = jacobian(start)
    first = time.perf_counter() - clock
    clock = time.perf_counter()
    fit = tg.scipy.least_squares(residuals, start, jacobian, x_scale="jac", ftol=1e-6, disp=True)
    elapsed = time.perf_counter() - clock

    # the same fit with finite differences
    def plain(v):
        parts = np.split(v, [cameras.size])
        return residuals({name: part.reshape(start[name].shape) for name, part in zip(start, parts)}).ravel()

    packed = np.concatenate([x.ravel() for x in start.values()])
    other = least_squares(plain, packed, jac_sparsity=blocks != 0, x_scale="jac", ftol=1e-6)
    print(f"unknowns, views                         {unknowns}, {count}")
    print(f"first Jacobian (compiles or loads)      {first:6.2f} s, {blocks.nnz / np.prod(blocks.shape):.2%} not zero")
    print(f"fit, first call and all                 {elapsed:6.2f} s, {fit.nfev} evaluations, {fit.njev} Jacobians")
    print(f"error at the start                      {error(start):.4f} pixels")
    print(f"error found                             {error(fit.x):.4f} pixels; Bundler's {error(bundler):.4f}")
    print(f"half the squares                        {fit.cost:.3f}; by differences {other.cost:.3f}")

    figure = Figure(figsize=(10, 5), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 1])
    photograph = imread(folder / "Balbianello" / "BalbianelloMedium-1.jpg")
    middle, up = np.array(photograph.shape[1::-1]) / 2, np.array([1, -1])
    left.imshow(photograph)
    first = camera == 0
    for scene, mark, name in ((start, "r.", "at the start"), (fit.x, "c.", "found")):
        place = middle + up * (pixels + residuals(scene))[first]
        left.plot(*place.T, mark, ms=3, label=name)
    left.plot(*(middle + up * pixels[first]).T, "o", color="white", mfc="none", ms=5, mew=0.5, label="measured")
    left.set(title="The first photograph", xticks=[], yticks=[])
    left.legend(loc="lower left")
    turns = Rotation.from_rotvec(fit.x["cameras"][:, :3])
    eyes = -turns.inv().apply(fit.x["cameras"][:, 3:6])
    right.scatter(fit.x["points"][:, 0], -fit.x["points"][:, 2], s=8, c=colours)
    right.plot(eyes[:, 0], -eyes[:, 2], "r^", label="cameras")
    right.set(title="From above", aspect="equal")
    right.legend(loc="center left")
    figure.savefig("bundle_adjustment.png", dpi=120)
    found = fit.success and error(fit.x) <= error(bundler)
    return 0 if found and abs(fit.cost / other.cost - 1) < 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main())
