//go:build !windows

package storage

func isSystemShortage(error) bool { return false }
