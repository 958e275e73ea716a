//go:build !windows

package storage

// hasModes: the system's files have modes that decide on access.
const hasModes = true
