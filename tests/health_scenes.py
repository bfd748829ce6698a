"""Models of digits that answer oddly, and the flags they raise."""

from digit_names import NAMES
from torch import nn

from classwise.doors.health import check_health

EPS = 0.15


class Wrapped(nn.Module):
    """A net behind some mischief."""

    def __init__(self, net, before=lambda x: x, after=lambda z: z):
        super().__init__()
        self.net, self.before, self.after = net, before, after
        self.eval()

    def forward(self, x):
        return self.after(self.net(self.before(x)))


def flags(model, digits, **facts):
    found = check_health(model, *digits[1:], **{"eps": EPS, "class_names": NAMES, **facts})
    return {flag.name: flag for flag in found}
