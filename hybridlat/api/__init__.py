"""Behind the front door, which is ``hybridlat`` itself: a network in, an estimate out.

A ``Predictor`` holds sessions, one for each precision; free functions estimate, measure and read.
"""
