"""gRPC messages and stubs, generated from proto/*.proto when the package is built."""
