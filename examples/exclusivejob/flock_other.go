//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd || windows)

package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

func flock(f *os.File) error {
	return fmt.Errorf("lock %s on %s: %w", f.Name(), runtime.GOOS, errors.ErrUnsupported)
}
