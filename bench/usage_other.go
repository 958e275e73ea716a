//go:build !unix

package main

import (
	"errors"
	"os"
	"time"
)

func cpuTime() (time.Duration, error) { return 0, errors.ErrUnsupported }

// blocks returns the size of a file.
func blocks(info os.FileInfo) uint64 { return uint64(info.Size()) }
