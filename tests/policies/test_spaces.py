import numpy as np
import pytest
from gymnasium import spaces

from esbench.errors import UsageError
from esbench.policies.spaces import Actions, Observations

NO_POLICY_INPUT = [
    spaces.Dict({"position": spaces.Box(-1, 1, (2,))}),
    spaces.Tuple((spaces.Discrete(2), spaces.Discrete(3))),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiBinary(4),
    spaces.Text(5),
]


def test_a_flat_box_is_itself():
    observations = Observations(spaces.Box(-np.inf, np.inf, (3,), np.float64), "Env-v0")
    batch = np.array([[1.5, -2.0, 1e300], [0.1, 0.2, 0.3]])
    encoded = observations.encode(batch)
    assert (observations.size, observations.shape) == (3, (3,))
    assert encoded.dtype == np.float64
    np.testing.assert_array_equal(encoded, batch)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint8])
def test_a_box_of_any_shape_is_flattened_in_c_order(dtype):
    observations = Observations(spaces.Box(0, 100, (2, 3), dtype), "Env-v0")
    batch = np.arange(24).reshape(4, 2, 3).astype(dtype)
    encoded = observations.encode(batch)
    assert observations.size == 6
    assert encoded.dtype == dtype
    np.testing.assert_array_equal(encoded, np.arange(24.0).reshape(4, 6))


def test_a_box_without_dimensions_is_one_number():
    observations = Observations(spaces.Box(-1, 1, ()), "Env-v0")
    assert observations.size == 1
    encoded = observations.encode(np.array([0.5, -0.5], np.float32))
    np.testing.assert_array_equal(encoded, [[0.5], [-0.5]])


def test_bounded_images_are_flattened():
    observations = Observations(spaces.Box(0, 255, (4, 5, 3), np.uint8), "Env-v0")
    batch = np.full((2, 4, 5, 3), 255, np.uint8)
    assert observations.size == 60
    np.testing.assert_array_equal(observations.encode(batch), np.full((2, 60), 255.0))


@pytest.mark.parametrize("start", [0, 3, -2])
def test_discrete_observations_are_one_hot_from_their_start(start):
    observations = Observations(spaces.Discrete(4, start=start), "Env-v0")
    encoded = observations.encode(np.array([start, start + 3, start + 1]))
    assert (observations.size, observations.shape) == (4, ())
    assert encoded.dtype == np.float64
    np.testing.assert_array_equal(encoded, [[1, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, 0]])


@pytest.mark.parametrize("space", NO_POLICY_INPUT, ids=lambda space: type(space).__name__)
@pytest.mark.parametrize(("cls", "kind"), [(Observations, "observation"), (Actions, "action")])
def test_other_spaces_are_refused(cls, kind, space):
    words = f"Zoo-v3: .*{kind} space is a {type(space).__name__} .*Box or Discrete"
    with pytest.raises(UsageError, match=words):
        cls(space, "Zoo-v3")


@pytest.mark.parametrize(("low", "high"), [(-np.inf, np.inf), (0, np.inf), (-np.inf, 255)])
def test_images_without_bounds_are_refused_in_words(low, high):
    with pytest.raises(UsageError, match=r"Zoo-v3: .*images \(4, 5, 3\) .*expected finite bounds"):
        Observations(spaces.Box(low, high, (4, 5, 3)), "Zoo-v3")


@pytest.mark.parametrize("start", [0, 5, -1])
def test_the_largest_output_is_the_discrete_action(start):
    actions = Actions(spaces.Discrete(3, start=start), "Env-v0")
    outputs = np.array([[0.1, 0.3, 0.2], [-1, -2, -3], [0, 0, 1], [2, 2, 1]], np.float32)
    decoded = actions.decode(outputs)
    assert (actions.size, actions.continuous) == (3, False)
    np.testing.assert_array_equal(decoded, np.array([1, 0, 2, 0]) + start)  # the first of equals
    assert all(spaces.Discrete(3, start=start).contains(action) for action in decoded)


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
        (1, [5, 0.5], [1, 0.5]),
    ],
    ids=["unbounded", "nan", "clipped"],
)
def test_actions_are_a_new_array_where_nan_stays_visible(bound, output, action):
    outputs = np.array([output], np.float32)
    decoded = Actions(spaces.Box(-bound, bound, (2,)), "Env-v0").decode(outputs)
    np.testing.assert_array_equal(decoded, np.array([action], np.float32))
    decoded += 100
    np.testing.assert_array_equal(outputs, np.array([output], np.float32))
