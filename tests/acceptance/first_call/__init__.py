"""What a first call on a GPU brings back, and how the product takes it over."""
