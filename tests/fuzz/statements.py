"""The lines of random programs that are statements: updates in place, loops and branches."""

from __future__ import annotations

from fuzz.grammar import lines

__all__ = ["FLOW", "UPDATES"]

UPDATES = lines(
    """
{U} += {c}
{U} *= {c}
{U} -= {G}
{U}[{at}] = {c}
{U}[{at}] *= {c}
{U}[{at}] += {S}
{U}[{mask}] = {c}
{U}[{mask}] *= {S}
{U}[{mask}] += 0.25
{U}[{cells}] = {S}
{U}[{cells}] += {c}
{U}[...] = {G}
{U}.T[0] += {c}
{U}.ravel()[1:] = {c}
{U}.reshape(-1)[::2] *= {S}
np.add.at({U}, [0, 0, -1], {c})
np.add({U}, {G}, out={U})
np.sin({U}, out={U})
np.maximum({U}, {c}, out={U})
np.put({U}, [0, -1], {S})
np.putmask({U}, {U} > {c}, {S})
np.copyto({U}, {G})
np.fill_diagonal({U}, {S})
np.place({U}, {U} > {c}, [{c2}])
{U}.fill({S})
{U}.sort()
{U}[0], {U}[-1] = {U}[-1] * 1.0, {U}[0] * 1.0
{U}[1:] -= {U}[:-1]
{U} **= 2
{U} /= {p}
{U}.flat[0] = {S}
np.subtract.at({U}, 0, {c})
np.multiply.at({U}, [0], {S})
{U}[:, 0] = {V}
{U}[::-1] = {U}.copy()
np.clip({U}, -1.0, {p}, out={U})
np.copyto({U}, {c}, where={mask})
np.maximum.at({U}, [0, -1, 0], {c})
np.minimum.at({U}, {order}, {S})
np.negative.at({U}, [0])
np.divide.at({U}, [0, 0], {p})
np.add.at({U}, {order}, {S})
np.add.at({U}, {I} % len({U}), {c})
np.add({U}, {c}, out={U}, where={mask})
np.multiply({U}, {G}, out={U}, where={mask})
np.add({U}[1:], {U}[:-1], out={U}[1:])
np.cumsum({U}, {axis}, out={U})
np.exp(-np.abs({U}), out={U})
np.negative({U}[::-1], {U})
np.sqrt(1.0 + {U} ** 2, out={U}[...])
np.divide(1.0, {U}, out={U}, where=np.abs({U}) > 0.3)
np.put_along_axis({U}, np.expand_dims(np.argmax({U}, {axis}), {axis}), {c}, {axis})
{U}.sort({axis})
{U}.partition({k})
{U}[np.argsort(np.round({U}[..., 0], 6))] = {U}
{U}[{I} % len({U})] = {c}
{U}[{I} % len({U})] += {c}
{U}[np.where({U} > {c})] *= {S}
{U}[{mask}] = {U}[{mask}] ** 2
{U}[{U} > {c}] = np.sort({U}[{U} > {c}])
{U}[...] = {I}
{U} += {B}
{U} *= {I}
{U}[{at}] = {I}
{U}.T[...] *= {c}
{U}[::2] = {U}[::2][::-1]
{U}.real *= {c}
{U}[{at}] **= 2
{U} //= {p}
{U} %= {p}
{J} += {k}
{J} *= {k}
{J}[{at}] = {k}
{J}[{at}] = {S}
{J}[{mask}] = {k}
{J}[{mask}] -= 1
np.add.at({J}, [0, 0], {k})
{J} //= 2
{J} &= 3
{J} <<= 1
{J}.sort()
np.maximum({J}, {k}, out={J})
np.copyto({J}, {F}, casting='unsafe')
np.putmask({J}, {J} > 1, {k})
"""
)

# What holds `NEW` makes a variable.
FLOW = lines(
    """
NEW = 0.0
for z in {V}:
    NEW = NEW * 0.5 + np.sin(z)

NEW = {F}
for i in range({k}):
    NEW = NEW + 0.1 * np.sin(NEW) * i

NEW = {F} * 1.0
for i in range({k}):
    NEW = 0.5 * (NEW + {c} / (1.0 + NEW ** 2))

NEW = {S}
while abs(NEW) > 0.3:
    NEW = NEW * 0.6

if {S} > {c}:
    NEW = {F} * 2.0
else:
    NEW = {F} - 1.0

NEW = {F} if np.sum({F}) > {c} else -{F}

NEW = np.zeros({k} + 1)
for i in range({k}):
    NEW[i + 1] = NEW[i] * 0.5 + {S}

NEW = np.zeros(len({V}))
for i, z in enumerate({V}):
    NEW[i] = z ** 2 if z > 0.1 else z

NEW = np.zeros_like({M})
for i in range({M}.shape[0]):
    for j in range({M}.shape[1]):
        NEW[i, j] = {M}[i, j] * (i + 1) - j

NEW = [row * {c} for row in {M}]
NEW = sum(NEW)

try:
    NEW = {F} * {M}
except ValueError:
    NEW = {F} * 0.5

NEW = {V}
for i in range(1, len(NEW)):
    if NEW[i] < NEW[i - 1]:
        break
    NEW = NEW * 0.9

NEW = max({S}, {S2}) + min({S}, {c})

NEW = sum(z * {c} for z in {V})

NEW = {F}
for w in ({c}, {c2}):
    NEW = np.tanh(NEW + w)

total = {'a': {S}, 'b': {c}}
total['a'] = total['a'] + 1.0
NEW = total['a'] * total['b']

NEW = float(np.floor({S})) * {F}

NEW = np.cumsum([{S}, *({c}, {c2})])
NEW = 0.0
for z in {V}:
    if z > {c}:
        break
    NEW = NEW + z ** 2

NEW = {S}
for z in {V}:
    if z < 0.0:
        continue
    NEW = NEW * 0.5 + z

NEW = {S}
for z in {V}:
    if z > {c}:
        NEW = NEW + 1.0
        break
else:
    NEW = NEW - 2.0

NEW, i = {S} * 1.0, 0
while i < {k} and abs(NEW) < 3.0:
    NEW, i = NEW * 1.5 + 0.1, i + 1

NEW, i = 1.0, 0
while True:
    step = (NEW ** 2 - (1.0 + abs({S}))) / (2.0 * NEW)
    NEW, i = NEW - step, i + 1
    if abs(step) < 1e-3 or i > 20:
        break

low, high = 0.0, 4.0
while high - low > 0.4:
    middle = 0.5 * (low + high)
    if middle ** 2 < abs({S}):
        low = middle
    else:
        high = middle
NEW = low * {S}

NEW = [z * {c} for z in {V} if z > {c2}]
NEW = np.array([*NEW, {S}])

NEW = []
for z in {V}:
    NEW.append(z ** 2)
    if len(NEW) > {k}:
        break
NEW = np.array(NEW) * {c}

NEW = {V}.copy()
for i in range(1, len(NEW)):
    NEW[i] += NEW[i - 1] * 0.5

NEW = {V}.copy()
for i in range(len(NEW)):
    for j in range(len(NEW) - 1 - i):
        if NEW[j] > NEW[j + 1]:
            NEW[j], NEW[j + 1] = NEW[j + 1], NEW[j]

NEW = {M}.copy()
for i in range(1, min(NEW.shape)):
    NEW[i, :i] -= NEW[i - 1, :i] * {c}

def helper(a, b=0.5):
    if a > {c}:
        return a * b
    return a - b
NEW = helper({S}) + helper({S2}, 2.0)

def helper(a, n):
    return a if n == 0 or abs(a) > 3.0 else helper(a * 1.2 + 0.1, n - 1)
NEW = helper({S}, {k})

NEW = np.stack([row if np.sum(row) > {c} else -row for row in {M}])

NEW = 0.0
for row in {M}:
    for z in row:
        if z > 1.0:
            break
        NEW = NEW + z * {c}

NEW = sum(z * w for z, w in zip({V}, reversed({V2})))

NEW = max({V}, key=lambda z: z * {c})

NEW = sum(sorted({V})[:2])

NEW = {S} * sum(1 for z in {V} if z > {c})

NEW = {F} * 2.0 if {c} < {S} < {c2} or not {S2} > 0.0 else {F} / 2.0

NEW = ({S} or 1.0) * {F}

NEW = (any(z > 1.0 for z in {V}) + 1) * {S}

NEW = np.zeros({k} + 1)
for i, z in enumerate({V}):
    NEW[i % len(NEW)] += z

NEW = {F}
if np.any({mask}):
    NEW = NEW * {c}
elif {S} > 0.0:
    NEW = NEW + {c}

count = 0
for z in {V}:
    count += z > {c}
NEW = {S} * count

best, place = -np.inf, -1
for i, z in enumerate({V}):
    if z > best:
        best, place = z, i
NEW = best * (place + 1.0)

NEW = np.zeros_like({F})
for z in np.nditer({V}):
    NEW = NEW + z * {c}

NEW = {F} * 1.0
for i, z in np.ndenumerate({M}):
    NEW = NEW + z * i[0]

NEW = int({S} * 3.0) + round({S2}, 1)

NEW = {F}
for i in range(int(abs({S}) * 4)):
    NEW = np.tanh(NEW) + {c}

parts = [{F}]
while len(parts) < {k}:
    parts.append(parts[-1] * {c} + 0.1)
NEW = np.stack(parts)

NEW = {V}
while len(NEW) > 2:
    NEW = NEW[:-1] + NEW[1:] * 0.5

rest = {V}
NEW = 0.0
while len(rest):
    NEW, rest = NEW + rest[0], rest[1:][rest[1:] > {c}]

with np.errstate(all='ignore'):
    NEW = {F} / (1.0 + np.abs({G}))

NEW = {F}
try:
    NEW = NEW[{k}]
except IndexError:
    NEW = NEW * {c}

state = {'v': {F}, 'n': 0}
for i in range({k}):
    state['v'], state['n'] = state['v'] * 0.9, state['n'] + 1
NEW = state['v'] * state['n']

NEW, *others = {V}
NEW = NEW * len(others)

NEW = [float(z) for z in {V}]
NEW = np.array(NEW + [{c}]) * 2.0

""",
    "\n\n",
)
