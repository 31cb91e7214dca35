"""Parts of the synthetic natural pictures: grounds, objects and the words for them."""
