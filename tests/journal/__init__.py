"""P1: any prefix of any journal projects to a request that every provider takes."""
