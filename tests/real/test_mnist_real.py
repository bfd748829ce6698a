"""The real MNIST: how many digits of each kind, mean and deviation as papers have them."""


def test_mnist_is_as_everybody_knows_it(mnist):
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert mnist.train.sizes.tolist() == counts
    assert mnist.test.sizes.tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert mnist.train.channel_statistics == ((0.1307,), (0.3081,))
