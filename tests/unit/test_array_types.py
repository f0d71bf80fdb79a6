"""What an input or state takes besides its own element type: in Python as in the engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from node import run

from tilewright.base.dtypes import DECLARED, in_memory
from tilewright.base.errors import InputError
from tilewright.bundle import TensorInfo
from tilewright.hosts.inputs_outputs import widened

#: Of typed arrays, by NumPy's names; booleans lie in bytes there.
ARRAYS = {
    "float16": "Float16Array", "float32": "Float32Array", "float64": "Float64Array",
    "int8": "Int8Array", "uint8": "Uint8Array", "int16": "Int16Array", "int32": "Int32Array",
    "uint16": "Uint16Array", "uint32": "Uint32Array", "int64": "BigInt64Array",
}  # fmt: skip

#: Node 20 has no Float16Array: one that says so of itself stands for it.
SCRIPT = """
globalThis.Float16Array ??= class Float16Array extends Float32Array {
  get [Symbol.toStringTag]() { return 'Float16Array'; }
};
const tensors = await import('TUNE/../engine/tensors.js');
const { arrayOf, checkInputs, convert, inMemory, useHalves } = tensors;
const { makeStates } = await import('TUNE/../engine/tensors.js');
await useHalves({ inputs: [{ dtype: 'f16' }], outputs: [], states: [] });
const { dtypes, arrays } = <given>;
const found = {};
const facts = ({ code, message, hint, facts }) => ({ code, message, hint, facts });
for (const dtype of dtypes) {
  for (const array of arrays) {
    const given = new globalThis[array](2).fill(array.startsWith('Big') ? 1n : 1);
    let outcome;
    try {
      const inputs = [{ name: 'x', dtype, shape: [2] }];
      const { data } = checkInputs({ inputs, dims: {} }, { x: given }).tensors[0];
      const own = data.constructor === arrayOf(inMemory(dtype));
      outcome = { same: data === given, numbers: Array.from(data, Number), own };
    } catch (error) {
      outcome = facts(error);
    }
    found[`${dtype} ${array}`] = outcome;
  }
}
const place = { name: 'h', dtype: 'f32', declared: 'f32', shape: [2], address: 0, bytes: 8 };
const memory = { buffer: new ArrayBuffer(8) };
const states = makeStates([place], (job) => job(), { memory }, () => {});
await states.write('h', Float16Array.of(0.5, -2));
const state = Array.from(await states.read('h'));
const wrong = await states.write('h', Float64Array.of(1, 2)).catch(facts);
delete globalThis.Float16Array;
let without;
try {
  convert({ name: 'x', dtype: 'f32', shape: [2] }, new Float64Array(2));
} catch ({ hint }) {
  without = hint;
}
console.log(JSON.stringify({ found, state, wrong, without }));
"""


@pytest.fixture(scope="module")
def engine() -> Any:
    return run(SCRIPT, given={"dtypes": list(DECLARED), "arrays": list(ARRAYS.values())})


@pytest.mark.parametrize("dtype", DECLARED)
def test_python_takes_what_the_engine_takes(dtype: Any, engine: Any) -> None:
    own, lies = DECLARED[dtype].numpy, in_memory(dtype).numpy
    for name, array in ARRAYS.items():
        said = engine["found"][f"{dtype} {array}"]
        assert isinstance(said, dict)
        if dtype == "bool":  # Uint8Array there, an element type of its own here
            assert ("code" in said) == (name != "uint8")
            continue
        info, given = TensorInfo(name="x", dtype=dtype, shape=(2,)), np.ones(2, name)
        if "code" not in said:
            found = widened(info, given)
            assert found.dtype == lies
            assert said["numbers"] == found.tolist()
            assert name == "uint16" or found.tolist() == [1, 1]
            continue
        with pytest.raises(InputError) as caught:
            widened(info, given)
        words = "Input 'x' has the wrong type: expected {}, found {}"
        assert caught.value.message == words.format(own, name)
        assert said["message"] == words.format(dtype, array)
        assert said["code"] == caught.value.code
        assert said["facts"] == {"input": "x", "expected": dtype, "found": array}


def test_halves_of_the_engine(engine: Any) -> None:
    """Where there are arrays of f16, and in the words of an error only there."""
    assert engine["found"]["f32 Float16Array"] == {
        "same": True, "numbers": [1, 1], "own": False,
    }  # fmt: skip
    assert engine["found"]["f32 Float32Array"]["same"]
    assert engine["state"] == [0.5, -2]
    words = "State 'h' has the wrong type: expected f32, found Float64Array"
    assert engine["wrong"]["message"] == words
    assert engine["wrong"]["hint"] == "Give Float32Array or Float16Array or Array"
    assert engine["wrong"]["facts"] == {"state": "h", "expected": "f32", "found": "Float64Array"}
    assert engine["without"] == "Give Float32Array or Float16Array or Array"


def test_numbers_of_another_byte_order() -> None:
    found = widened(TensorInfo(name="x", dtype="f32", shape=(2,)), np.array([1, 2], ">f2"))
    np.testing.assert_array_equal(found, np.array([1, 2], np.float32))
