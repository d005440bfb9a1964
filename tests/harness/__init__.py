"""What the integration tests stand on: servers, clients, faults and objects."""
