"""Files of Tensors: PyTorch's bytes both ways, what views share, and pickles that want to run code."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections import Counter, OrderedDict
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import tracegrad as tg
from tracegrad import serialization
from tracegrad.torch.tape.tensors import dtypes
from tracegrad.utils import data

# data.pkl of `torch.save({"w": torch.tensor([1.0, 2.0, 3.0])}, f)`, as PyTorch 2 writes it.
PICKLE = (
    b"\x80\x02}q\x00X\x01\x00\x00\x00wq\x01ctorch._utils\n_rebuild_tensor_v2\nq\x02((X\x07\x00\x00\x00storageq\x03"
    b"ctorch\nFloatStorage\nq\x04X\x01\x00\x00\x000q\x05X\x03\x00\x00\x00cpuq\x06K\x03tq\x07QK\x00K\x03\x85q\x08K\x01"
    b"\x85q\t\x89ccollections\nOrderedDict\nq\n)Rq\x0btq\x0cRq\rs."
)
FLOATS = struct.pack("<3f", 1.0, 2.0, 3.0)


def archive(pickled: bytes, *records: bytes, folder: str = "model", **others: bytes) -> io.BytesIO:
    """A file as PyTorch writes it: `records` are the storages."""
    file = io.BytesIO()
    contents = {"data.pkl": pickled, "byteorder": b"little", ".format_version": b"1", "version": b"3\n", **others}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as out:
        for name, each in {**contents, **{f"data/{k}": each for k, each in enumerate(records)}}.items():
            out.writestr(f"{folder}/{name}", each)
    file.seek(0)
    return file


def pickle_of(tensor: bytes) -> bytes:
    return b"\x80\x02" + tensor + b"."


def rebuilt(storage: bytes, offset: int = 0, size: bytes = b"K\x03\x85", stride: bytes = b"K\x01\x85") -> bytes:
    """The call that makes a tensor of a storage: `(b"FloatStorage", b"0", 3)` and so on."""
    arguments = storage + b"K" + bytes([offset]) + size + stride + b"\x89ccollections\nOrderedDict\n)R"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + arguments + b"tR"


def storage(kind: bytes = b"torch\nFloatStorage", location: str = "cpu", numel: int = 3) -> bytes:
    where = location.encode()
    place = b"\nX\x01\x00\x00\x000X" + struct.pack("<I", len(where)) + where
    return b"(X\x07\x00\x00\x00storagec" + kind + place + b"K" + bytes([numel]) + b"tQ"


def again(obj: Any, **options: Any) -> Any:
    file = io.BytesIO()
    tg.save(obj, file)
    return tg.load(file, **options)


# -- the format -------------------------------------------------------------------------------------------------------
def test_a_file_of_pytorch_is_loaded() -> None:
    loaded = tg.load(archive(PICKLE, FLOATS))
    assert list(loaded) == ["w"]
    assert loaded["w"].tolist() == [1.0, 2.0, 3.0]
    assert loaded["w"].dtype == tg.float32
    assert not loaded["w"].requires_grad


def test_what_is_saved_is_what_pytorch_saves(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    tg.save({"w": tg.tensor([1.0, 2.0, 3.0], dtype=tg.float32)}, path)
    with zipfile.ZipFile(path) as file:
        assert file.namelist() == ["model/data.pkl", "model/byteorder", "model/data/0", "model/version"]
        assert file.read("model/data/0") == FLOATS
        assert file.read("model/version") == b"3\n"
        opcodes = [_without_memo(each) for each in (file.read("model/data.pkl"), PICKLE)]
        assert opcodes[0] == opcodes[1]
        for info in file.infolist():
            raw = path.read_bytes()[info.header_offset :]
            name, extra = struct.unpack("<HH", raw[26:30])
            assert (info.header_offset + 30 + name + extra) % 64 == 0
    assert tg.load(str(path))["w"].tolist() == [1.0, 2.0, 3.0]


def _without_memo(pickled: bytes) -> list[Any]:
    import pickletools

    return [(op.name, argument) for op, argument, _ in pickletools.genops(pickled) if op.name != "BINPUT"]


DTYPES = sorted(set(dtypes.DTYPES.values()), key=str)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_all_dtypes_come_back(dtype: Any) -> None:
    x = tg.tensor([[0, 1], [2, 3]]).to(dtype)
    loaded, kind = again((x, dtype))
    assert loaded.dtype == kind == dtype
    assert loaded.tolist() == x.tolist()


def test_containers_and_values_come_back() -> None:
    values = {
        "numbers": [1, -5, 2**70, 2.5, 3 + 4j, True, None, "text", b"bytes", ""],
        "sets": ({1, 2}, frozenset({3})),
        "ordered": OrderedDict(a=1, b=OrderedDict()),
        "counted": Counter("aab"),
        "size": tg.Size([2, 3]),
        "device": tg.device("cuda", 1),
        "shared": [[]] * 2,
    }
    loaded = again(values)
    assert loaded == values
    assert type(loaded["ordered"]) is OrderedDict
    assert type(loaded["size"]) is tg.Size
    assert (loaded["device"].type, loaded["device"].index) == ("cuda", 1)
    assert loaded["shared"][0] is loaded["shared"][1]


def test_views_share_their_storage() -> None:
    base = tg.arange(12.0).reshape(3, 4)
    views = {"base": base, "row": base[1], "turned": base.T, "step": base[:, 1::2], "wide": tg.ones(3).expand(2, 3)}
    loaded = again(views)
    for name, view in views.items():
        assert loaded[name].tolist() == view.tolist()
        assert loaded[name].stride() == view.stride()
    loaded["row"][0] = 100.0
    assert loaded["base"][1, 0] == loaded["turned"][0, 1] == 100.0
    file = io.BytesIO()
    tg.save(base[0, :2], file)
    assert len(zipfile.ZipFile(file).read("archive/data/0")) == 12 * 8
    assert tg.load(file).tolist() == [0.0, 1.0]


def test_what_pytorch_has_no_strides_for_is_copied() -> None:
    x = tg.from_numpy(np.arange(4.0)[::-1])
    assert again(x).tolist() == [3.0, 2.0, 1.0, 0.0]
    with pytest.raises(RuntimeError, match="Cannot save multiple tensors or storages that view the same data as"):
        again([tg.from_numpy(array := np.ones(2)), tg.from_numpy(array.view(np.int64))])


def test_leaves_parameters_and_attributes() -> None:
    x = tg.ones(2, requires_grad=True)
    x.label = "of the user"
    p = tg.nn.Parameter(tg.zeros(2))
    frozen = tg.nn.Parameter(tg.zeros(2), requires_grad=False)
    y, q, r, z = again([x, p, frozen, (x * 2)])
    assert (y.requires_grad, y.is_leaf, y.label) == (True, True, "of the user")
    assert isinstance(q, tg.nn.Parameter)
    assert (q.requires_grad, r.requires_grad) == (True, False)
    assert isinstance(r, tg.nn.Parameter)
    assert (z.requires_grad, z.is_leaf) == (True, True)
    p.note = 3
    assert again(p).note == 3


def test_training_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    def setup() -> Any:
        tg.manual_seed(0)
        model = tg.nn.Sequential(tg.nn.Linear(3, 4), tg.nn.BatchNorm1d(4), tg.nn.Dropout(0.3), tg.nn.Linear(4, 1))
        return model, tg.optim.Adam(model.parameters(), lr=0.1)

    def train(model: Any, optimizer: Any) -> list[float]:
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(tg.linspace(-1.0, 1.0, 15).reshape(5, 3)).pow(2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    model, optimizer = setup()
    train(model, optimizer)
    path = tmp_path / "checkpoint.pt"
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": tg.get_rng_state(), "epoch": 3}
    tg.save(state, path)
    expected = train(model, optimizer)
    model, optimizer = setup()
    loaded = tg.load(path, map_location="cpu")
    assert str(model.load_state_dict(loaded["model"])) == "<All keys matched successfully>"
    optimizer.load_state_dict(loaded["optimizer"])
    tg.set_rng_state(loaded["rng"])
    assert train(model, optimizer) == expected


def test_whole_modules_need_weights_only_false() -> None:
    model = tg.nn.Sequential(tg.nn.Linear(2, 1), tg.nn.ReLU())
    with pytest.raises(pickle.UnpicklingError, match=r"GLOBAL tracegrad\.torch\.nn\.container\.Sequential was not"):
        again(model)
    loaded = again(model, weights_only=False)
    assert isinstance(loaded[0].weight, tg.nn.Parameter)
    assert loaded(tg.ones(1, 2)).tolist() == model(tg.ones(1, 2)).tolist()


def test_arrays_of_numpy_are_those_of_numpy() -> None:
    values = {"a": np.arange(3.0), "s": np.float32(2)}
    loaded = again(values, weights_only=False)
    assert loaded["a"].tolist() == [0.0, 1.0, 2.0]
    assert type(loaded["s"]) is np.float32
    with pytest.raises(pickle.UnpicklingError, match=r"GLOBAL numpy"):
        again(values)


# -- what a file of another program may have ---------------------------------------------------------------------------
def test_bfloat16_becomes_float32() -> None:
    file = archive(pickle_of(rebuilt(storage(b"torch\nBFloat16Storage"))), struct.pack("<3H", 0x3F80, 0xC000, 0x3EAB))
    with pytest.warns(UserWarning, match="bfloat16; the values are loaded as float32"):
        loaded = tg.load(file)
    assert loaded.dtype == tg.float32
    assert loaded.tolist() == [1.0, -2.0, 0.333984375]


def test_the_order_of_bytes() -> None:
    assert tg.load(archive(PICKLE, struct.pack(">3f", 1, 2, 3), byteorder=b"big"))["w"].tolist() == [1.0, 2.0, 3.0]


def test_tensors_of_other_devices_need_a_map_location() -> None:
    file = archive(pickle_of(rebuilt(storage(location="cuda:0"))), FLOATS)
    with pytest.raises(RuntimeError, match=r"(?s)deserialize object on the device 'cuda:0'.*map_location"):
        tg.load(file)
    places: list[Any] = ["cpu", tg.device("cpu"), {"cuda:0": "cpu"}, lambda storage, location: storage]
    for place in places:
        assert tg.load(file, map_location=place).tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(RuntimeError, match="there is no device 'cuda'"):
        tg.load(file, map_location="cuda")


def test_an_ordered_dict_has_its_metadata() -> None:
    state = OrderedDict(w=tg.ones(1))
    state._metadata = OrderedDict(version=2)  # type: ignore[attr-defined]
    loaded = again(state)
    assert loaded._metadata == {"version": 2}


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (io.BytesIO(b"not a zip"), "not a zip archive"),
        (archive(PICKLE, FLOATS, folder="a/b"), "has no data.pkl"),
        (archive(PICKLE, FLOATS, **{"constants.pkl": b""}), "TorchScript program"),
        (archive(PICKLE), "has no record 'data/0'"),
        (archive(PICKLE, FLOATS[:-1]), "'data/0' has 11 bytes in place of 12"),
    ],
)
def test_files_that_are_no_archives_of_tensors(file: Any, text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        tg.load(file)


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        tg.load(tmp_path / "none.pt")
    with pytest.raises(AttributeError, match="expected 'f' to be string, path, or a file-like object"):
        tg.save(tg.ones(1), 3)


# -- files that want to run code ---------------------------------------------------------------------------------------
RAN: list[Any] = []


class Runs:
    def __reduce__(self) -> Any:
        return RAN.append, ("code of the file",)


class Safe(NamedTuple):
    x: int


class Stateful:
    def __init__(self) -> None:
        self.x = 1


EVIL = {
    "a call": b"cos\nsystem\nX\x04\x00\x00\x00true\x85R",
    "a call by a name from the stack": b"X\x08\x00\x00\x00builtinsX\x04\x00\x00\x00eval\x93X\x01\x00\x00\x001\x85R",
    "an instance": b"(X\x04\x00\x00\x00trueios\nsystem\n",
    "an object": b"(cos\nsystem\nX\x04\x00\x00\x00trueo",
    "an attribute of a function": b"ctorch._utils\n_rebuild_tensor_v2\n}X\x01\x00\x00\x00xK\x01sb",
    "an attribute of a class": b"ctorch\nTensor\n}X\x01\x00\x00\x00xK\x01sb",
    "a call of a value": b"ctorch\nTensor\n)R",
    "a call of a dtype": b"ctorch\nfloat32\n)R",
    "a new object of a class": b"ctorch\nTensor\n)\x81",
    "an extension": b"\x82\x01",
    "a state of a tensor": rebuilt(storage()) + b"}X\x05\x00\x00\x00arrayK\x01sb",
    "bytes of another codec": b"c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R",
    "a view after its storage": rebuilt(storage(), offset=1),
    "a view with a large stride": rebuilt(storage(), stride=b"K\x02\x85"),
    "a view with a huge stride": rebuilt(storage(), stride=b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x0f\x85"),
    "a negative offset": rebuilt(storage()).replace(b"QK\x00", b"QJ\xff\xff\xff\xff"),
    "a negative stride": rebuilt(storage(), stride=b"J\xff\xff\xff\xff\x85"),
    "no storage": rebuilt(b"K\x01"),
    "an attribute that a tensor has": b"ctorch._utils\n_rebuild_parameter_with_state\n("
    + rebuilt(storage())
    + b"\x88N}X\x05\x00\x00\x00arrayK\x01stR",
    "nothing": b"0",
    "no mark": b"t",
}


@pytest.mark.parametrize("name", EVIL)
def test_a_pickle_that_wants_more_than_values_is_refused(name: str) -> None:
    with pytest.raises(pickle.UnpicklingError, match=r"Weights only load failed|^load:"):
        tg.load(archive(pickle_of(EVIL[name]), FLOATS))


def test_no_code_of_a_file_runs() -> None:
    with pytest.raises(pickle.UnpicklingError, match="Unsupported global"):
        again([Runs()])
    assert RAN == []


def test_the_error_names_what_is_refused_and_how_to_allow_it() -> None:
    with pytest.raises(pickle.UnpicklingError, match=r"GLOBAL fractions\.Fraction .*add_safe_globals\(\[Fraction\]\)"):
        again(Fraction(1, 2))


def test_what_the_user_names_as_safe_is_loaded() -> None:
    with serialization.safe_globals([Safe, Stateful]):
        assert again(Safe(3)) == Safe(3)
        assert vars(again(Stateful())) == {"x": 1}
        assert serialization.get_safe_globals() == [Safe, Stateful]
    assert serialization.get_safe_globals() == []
    with serialization.safe_globals([(Stateful, "fractions.Fraction")]):
        assert type(tg.load(archive(pickle_of(b"cfractions\nFraction\n)R")))) is Stateful
    serialization.add_safe_globals([Safe])
    serialization.add_safe_globals([Safe])
    assert serialization.get_safe_globals() == [Safe]
    serialization.clear_safe_globals()
    with pytest.raises(pickle.UnpicklingError):
        again(Safe(3))


def test_datasets_of_tensors_are_objects() -> None:
    dataset = data.TensorDataset(tg.ones(2), tg.zeros(2))
    with serialization.safe_globals([data.TensorDataset]):
        assert len(again(dataset)) == 2
