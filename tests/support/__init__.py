"""What only our own tests and benches need: fakes, samples, theory."""
