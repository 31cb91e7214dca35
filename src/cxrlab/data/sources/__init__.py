"""Other people's data sets, each as its hospital or host ships it: one file a data set."""
