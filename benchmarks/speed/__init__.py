"""What do Gram matrices, fits, predictions and long runs cost, beside primitives and peers?"""
