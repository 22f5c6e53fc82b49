"""Conversations for people to read: every call joined with its result, whatever shows it.

What is said in which order is decided here, once; a layout (rows of a terminal, rows of a web
page) says what each piece looks like.
"""
