"""One file a group of image processors: their steps on floating pixels."""
