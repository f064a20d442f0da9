"""The custom function that tests of several rooms look at."""

import autograd_nb


def square(torch):
    "The function, of PyTorch or of this library."

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 2 * x

    return Square


Square = square(autograd_nb)
