//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package fencing

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

func flock(f *os.File) error {
	return fmt.Errorf("lock %s on %s: %w", f.Name(), runtime.GOOS, errors.ErrUnsupported)
}

func syncDir(string) error { return nil }
