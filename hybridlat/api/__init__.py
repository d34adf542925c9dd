"""Behind the front door, which is ``hybridlat`` itself: a network in, an estimate out."""
