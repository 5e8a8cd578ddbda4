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
REFUSED = [
    spaces.Text(5),
    spaces.Graph(spaces.Box(-1, 1, (2,)), None),
    spaces.Sequence(spaces.Discrete(2)),
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


@pytest.mark.parametrize("inside", [lambda space: space, lambda space: spaces.Tuple((space,))])
@pytest.mark.parametrize("space", REFUSED, ids=lambda space: type(space).__name__)
@pytest.mark.parametrize(("cls", "kind"), [(Observations, "observation"), (Actions, "action")])
def test_other_spaces_are_refused(cls, kind, space, inside):
    words = f"Zoo-v3: .*{kind} space has a {type(space).__name__} .*Box, Discrete"
    with pytest.raises(UsageError, match=words):
        cls(inside(space), "Zoo-v3")


def test_a_space_without_numbers_is_refused():
    with pytest.raises(UsageError, match="Zoo-v3: its observation space has no numbers"):
        Observations(spaces.Box(-1, 1, (0,)), "Zoo-v3")
    with pytest.raises(UsageError, match="Zoo-v3: its action space has no numbers"):
        Actions(spaces.Tuple([spaces.Box(-1, 1, (0,))]), "Zoo-v3")


@pytest.mark.parametrize("empty", [spaces.Dict({}), spaces.Tuple([])])
@pytest.mark.parametrize("cls", [Observations, Actions])
def test_a_part_without_parts_is_refused(cls, empty):
    with pytest.raises(UsageError, match=f"Zoo-v3: .* has an empty {type(empty).__name__} space"):
        cls(spaces.Dict(a=spaces.Box(-1, 1, (2,)), b=empty), "Zoo-v3")


def test_a_part_without_numbers_is_chosen_beside_others():
    space = spaces.Dict(a=spaces.Box(-1, 1, (2,), np.float32), b=spaces.Box(-1, 1, (0, 3)))
    actions = Actions(space, "Zoo-v3")
    for action in actions.decode(np.zeros((4, 2), np.float32)):
        assert space.contains(action)


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


def test_multi_discrete_actions_begin_at_their_start():
    space = spaces.MultiDiscrete([2, 3], start=[5, -1])
    decoded = Actions(space, "Env-v0").decode(np.array([[0, 1, 0, 0, 1]], np.float32))
    assert decoded.tolist() == [[6, 1]]


def test_actions_of_continuous_parts_are_continuous():
    space = spaces.Dict({"b": PARTS[1], "a": spaces.Tuple((PARTS[1],))})
    assert Actions(space, "Env-v0").continuous


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


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
@pytest.mark.parametrize("start", [0, 5])
def test_the_largest_output_is_the_discrete_action(start, dtype):
    space = spaces.Discrete(3, start=start, dtype=dtype)
    actions = Actions(space, "Env-v0")
    outputs = np.array([[0.1, 0.3, 0.2], [-1, -2, -3], [0, 0, 1], [2, 2, 1]], np.float32)
    decoded = actions.decode(outputs)
    assert (actions.size, actions.continuous) == (3, False)
    np.testing.assert_array_equal(decoded, np.array([1, 0, 2, 0]) + start)  # the first of equals
    assert all(space.contains(action) for action in decoded)


def test_box_actions_are_clipped_to_their_own_bounds():
    space = spaces.Box(np.array([-1, -0.5, 0], np.float32), np.array([1, 2, 0.25], np.float32))
    actions = Actions(space, "Env-v0")
    outputs = np.array([[3, -3, 0.1], [-0.2, 1.9, -0.1], [-9, 9, 9]], np.float32)
    decoded = actions.decode(outputs)
    assert (actions.size, actions.continuous) == (3, True)
    assert decoded.dtype == np.float32
    expected = np.array([[1, -0.5, 0.1], [-0.2, 1.9, 0], [-1, 2, 0.25]], np.float32)
    np.testing.assert_array_equal(decoded, expected)
    assert all(space.contains(action) for action in decoded)


def test_box_actions_of_integers_are_rounded():
    space = spaces.Box(-2, 2, (5,), np.int32)
    decoded = Actions(space, "Env-v0").decode(np.array([[-9, -0.6, 0.4, 0.6, 1.5]], np.float32))
    np.testing.assert_array_equal(decoded, [[-2, -1, 0, 1, 2]])


@pytest.mark.parametrize("outside", [2, 7])
def test_a_discrete_observation_outside_of_its_space_is_refused(outside):
    observations = Observations(spaces.Discrete(4, start=3), "Env-v0")
    with pytest.raises(TrainingError, match=f"Env-v0.* {outside} "):
        observations.encode(np.array([3, outside]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_box_actions_have_the_spaces_shape_and_type(dtype):
    space = spaces.Box(-2, 2, (2, 3), dtype)
    actions = Actions(space, "Env-v0")
    decoded = actions.decode(np.arange(24, dtype=np.float32).reshape(4, 6) - 12)
    assert actions.size == 6
    assert decoded.shape == (4, 2, 3)
    assert decoded.dtype == dtype
    assert all(space.contains(action) for action in decoded)
    np.testing.assert_array_equal(decoded[2], [[0, 1, 2], [2, 2, 2]])


@pytest.mark.parametrize(
    ("bound", "output", "action"),
    [
        (np.inf, [1e30, -1e30], [1e30, -1e30]),
        (1, [np.nan, 3.0], [np.nan, 1.0]),
    ],
    ids=["unbounded", "nan"],
)
def test_actions_are_a_new_array_where_nan_stays_visible(bound, output, action):
    outputs = np.array([output], np.float32)
    decoded = Actions(spaces.Box(-bound, bound, (2,)), "Env-v0").decode(outputs)
    np.testing.assert_array_equal(decoded, np.array([action], np.float32))
    decoded += 100
    np.testing.assert_array_equal(outputs, np.array([output], np.float32))
