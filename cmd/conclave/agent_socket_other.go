//go:build !unix

package main

import (
	"errors"
	"net"
)

// There is no mode that a socket is created with: without one its users cannot be chosen.
func listenPrivately(path string) (net.Listener, error) {
	return nil, errors.New(path + ": Unix sockets are not supported on this system: give a TCP address")
}

func refusedConnection(error) bool { return false }
