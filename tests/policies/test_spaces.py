import numpy as np
import pytest
from gymnasium import spaces

from esbench.core.errors import TrainingError, UsageError
from esbench.policies.spaces import Actions, Observations

PARTS = (
    spaces.Discrete(3, start=-1),
    spaces.Box(-1, 1, (2, 2)),
    spaces.MultiDiscrete(np.array([[2, 3], [4, 2]])),
    spaces.MultiBinary((3, 2)),
)
COMPOSITE = [
    *PARTS[2:],
    spaces.Tuple(PARTS),
    spaces.Dict({"z": spaces.Tuple(PARTS), "a": spaces.Dict({"b": PARTS[3], "a": PARTS[0]})}),
]


@pytest.mark.parametrize("shape", [(3,), (2, 3), (), (4, 5, 3)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint8])
def test_a_box_of_any_shape_is_flattened_in_c_order(shape, dtype):
    observations = Observations(spaces.Box(0, 255, shape, dtype), "Env-v0")
    flat = np.arange(4 * np.prod(shape)).reshape(4, -1).astype(dtype)
    encoded = observations.encode(flat.reshape(4, *shape))
    assert (observations.size, observations.shape) == (flat.shape[1], shape)
    assert encoded.dtype == dtype
    np.testing.assert_array_equal(encoded, flat)


@pytest.mark.parametrize("start", [0, 3, -2])
def test_discrete_observations_are_one_hot_from_their_start(start):
    observations = Observations(spaces.Discrete(4, start=start), "Env-v0")
    encoded = observations.encode(np.array([start, start + 3, start + 1]))
    assert (observations.size, observations.shape) == (4, ())
    assert encoded.dtype == np.float64
    np.testing.assert_array_equal(encoded, [[1, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, 0]])


@pytest.mark.parametrize("space", COMPOSITE, ids=lambda space: type(space).__name__)
def test_composite_observations_are_flattened_by_gymnasium(space):
    observations = Observations(space, "Env-v0")
    space.seed(0)
    samples = [space.sample() for _ in range(5)]
    expected = np.array([spaces.flatten(space, sample) for sample in samples])
    assert (observations.size, observations.pixels) == (expected.shape[1], None)
    np.testing.assert_array_equal(observations.encode(samples), expected)


def one_hot_argmax(space, outputs):
    """Return the flattened action of outputs [size] and what is left of them, by definition."""
    match space:
        case spaces.Tuple():
            children = space.spaces
        case spaces.Dict():
            children = space.spaces.values()
        case spaces.MultiDiscrete():
            children = [spaces.Discrete(n) for n in space.nvec.ravel()]
        case spaces.Box():
            size = int(np.prod(space.shape))
            return np.clip(outputs[:size], -1, 1), outputs[size:]
        case spaces.Discrete():
            return np.eye(space.n)[outputs[: space.n].argmax()], outputs[space.n :]
        case spaces.MultiBinary():
            pairs, rest = np.split(outputs, [2 * int(np.prod(space.shape))])
            return pairs[1::2] > pairs[::2], rest
    flat = []
    for child in children:
        one, outputs = one_hot_argmax(child, outputs)
        flat.append(one)
    return np.concatenate(flat), outputs


@pytest.mark.parametrize("space", COMPOSITE, ids=lambda space: type(space).__name__)
def test_composite_actions_are_chosen_part_by_part(space):
    actions = Actions(space, "Env-v0")
    outputs = np.random.default_rng(0).standard_normal((6, actions.size)).astype(np.float32)
    decoded = actions.decode(outputs)
    assert len(decoded) == 6
    assert not actions.continuous
    for row, action in zip(outputs, decoded, strict=True):
        assert space.contains(action)
        expected, left = one_hot_argmax(space, row)
        assert left.size == 0
        np.testing.assert_array_equal(spaces.flatten(space, action), expected)


@pytest.mark.parametrize(
    ("space", "pixels"),
    [
        (spaces.Box(0, 255, (8, 9), np.uint8), (0.0, 255.0)),
        (spaces.Box(-1, 1, (4, 8, 9, 3)), (-1.0, 1.0)),
        (spaces.Box(-1, 1, (8, 9)), None),
        (spaces.Box(0, 255, (8,), np.uint8), None),
        (spaces.Box(0, np.inf, (4, 5, 3)), (0.0, np.inf)),
    ],
)
def test_images_have_three_axes_or_two_of_bytes(space, pixels):
    assert Observations(space, "Env-v0").pixels == pixels


@pytest.mark.parametrize("outside", [2, 7])
def test_a_discrete_observation_outside_of_its_space_is_refused(outside):
    observations = Observations(spaces.Discrete(4, start=3), "Env-v0")
    with pytest.raises(TrainingError, match=f"Env-v0.* {outside} "):
        observations.encode(np.array([3, outside]))


def box(low, high, dtype=np.float32, shape=None):
    return spaces.Box(np.array(low, dtype), np.array(high, dtype), shape, dtype)


@pytest.mark.parametrize(
    ("space", "outputs", "actions"),
    [
        (box([-1, -0.5, 0], [1, 2, 0.25]), [3, -3, 0.1], [1, -0.5, 0.1]),  # own bounds
        (box([-1, -0.5, 0], [1, 2, 0.25]), [-0.2, 1.9, -0.1], [-0.2, 1.9, 0]),
        (spaces.Box(-2, 2, (5,), np.int32), [-9, -0.6, 0.4, 0.6, 1.5], [-2, -1, 0, 1, 2]),
        (spaces.Box(-2, 2, (2, 3)), range(-3, 3), [[-2, -2, -1], [0, 1, 2]]),
        (spaces.Box(-2, 2, (2, 3), np.float64), range(-3, 3), [[-2, -2, -1], [0, 1, 2]]),
        (spaces.Box(-np.inf, np.inf, (2,)), [1e30, -1e30], [1e30, -1e30]),
        (spaces.Box(-1, 1, (2,)), [np.nan, 3.0], [np.nan, 1.0]),
        (spaces.Discrete(3), [0.1, 0.3, 0.2], 1),
        (spaces.Discrete(3, start=5, dtype=np.uint8), [-1, -2, -3], 5),
        (spaces.Discrete(3, start=5, dtype=np.int32), [2, 2, 1], 5),  # the first of equals
        (spaces.MultiDiscrete([2, 3], start=[5, -1]), [0, 1, 0, 0, 1], [6, 1]),
    ],
)
def test_actions_of_outputs(space, outputs, actions):
    made, given = Actions(space, "Env-v0"), np.array([list(outputs)] * 2, np.float32)
    kept = given.copy()
    decoded = made.decode(given)
    assert (made.size, made.continuous) == (given.shape[1], isinstance(space, spaces.Box))
    assert decoded.dtype == space.dtype
    np.testing.assert_array_equal(decoded, np.array([actions] * 2, space.dtype))
    assert np.isnan(decoded).any() or all(space.contains(action) for action in decoded)
    decoded += 1  # a new array
    np.testing.assert_array_equal(given, kept)


@pytest.mark.parametrize(("cls", "kind"), [(Observations, "observation"), (Actions, "action")])
@pytest.mark.parametrize(
    ("space", "words"),
    [
        *(
            (wrap(space), f"has a {type(space).__name__} space; expected Box, Discrete")
            for space in (
                spaces.Text(5),
                spaces.Graph(spaces.Box(-1, 1, (2,)), None),
                spaces.Sequence(spaces.Discrete(2)),
            )
            for wrap in (lambda space: space, lambda space: spaces.Tuple((space,)))
        ),
        (spaces.Tuple([spaces.Box(-1, 1, (0,))]), "has no numbers"),
        (spaces.Dict(a=PARTS[1], b=spaces.Dict({})), "has an empty Dict space"),
    ],
)
def test_a_space_that_is_no_vector_is_refused(cls, kind, space, words):
    with pytest.raises(UsageError, match=f"Zoo-v3: its {kind} space {words}"):
        cls(space, "Zoo-v3")


def test_an_action_of_one_of_several_spaces_is_refused():
    for space in (spaces.OneOf(PARTS), spaces.Dict(a=PARTS[0], b=spaces.OneOf(PARTS))):
        assert Observations(space, "Zoo-v3").size
        with pytest.raises(UsageError, match="action space has a OneOf space"):
            Actions(space, "Zoo-v3")
