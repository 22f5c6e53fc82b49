"""Repairs that are known to have made things worse elsewhere; none of them may happen here."""
