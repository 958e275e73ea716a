//go:build !linux

package storage

import "github.com/cockroachdb/pebble/v2/vfs"

func preallocate(f vfs.File, _ string, off, length int64) error { return f.Preallocate(off, length) }
