"""Networks of the zoo as torch modules, written with torch alone, so that what is measured is what is predicted.

Tests compare each with the network of the zoo that has its name: parameters, FLOPs forward and
backward, and what autograd keeps for the backward pass.
"""
