"""Pure formulas, one topic a module. Numbers or integer arrays in, a number out.

A formula is one `return` expression. Its printed form is read from that same code, so the two cannot differ.
"""
