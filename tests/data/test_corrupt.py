from condinit_jax.data.corrupt import NAMED, Corrupt


def test_each_example_counts_once_and_the_list_stays_short():
    corrupt = Corrupt()
    for _ in range(3):
        corrupt.add(f"{number}.png: truncated" for number in range(100))
    assert corrupt.count == 100
    assert corrupt.names == [f"{number}.png: truncated" for number in range(NAMED)]
