package storage

// hasModes: access is decided by lists that a file inherits from its directory.
const hasModes = false
