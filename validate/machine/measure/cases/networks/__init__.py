"""Networks of the zoo as torch modules, written with torch alone, so that measured and predicted networks agree.

Tests compare each with the zoo's network of the same name: parameters, FLOPs forward and backward, and the tensors
that autograd saves for the backward pass.
"""
