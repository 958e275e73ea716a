//go:build unix

package main

import (
	"errors"
	"net"
	"syscall"
)

// listenPrivately creates a socket with the mode 0600. The process's mask does that from the first moment,
// and makes other files that this creates meanwhile no more open.
func listenPrivately(path string) (net.Listener, error) {
	defer syscall.Umask(syscall.Umask(0o177))
	return net.Listen("unix", path)
}

func refusedConnection(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
