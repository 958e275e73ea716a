package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// unixScheme begins the address of a Unix socket, as Consul's clients have it in CONSUL_HTTP_ADDR.
const unixScheme = "unix://"

// maxSocketPath leaves room for the zero at the end, which some systems want.
const maxSocketPath = len(syscall.RawSockaddrUnix{}.Path) - 1

// listenConsul listens at a TCP address, or at a Unix socket, which only this program's user can connect to.
func listenConsul(addr string) (net.Listener, error) {
	path, ok := strings.CutPrefix(addr, unixScheme)
	if !ok {
		return net.Listen("tcp", addr)
	}
	// Linux takes neither for the name of a file: every user of the machine can connect to such a socket.
	if path == "" || strings.HasPrefix(path, "@") {
		return nil, usagef("%s: want the path of a file, as unix:///run/conclave/consul.sock", addr)
	}
	if len(path) > maxSocketPath { // the system's own error is "invalid argument"
		return nil, usagef("%s: the path of a socket has at most %d bytes, this one %d: give a shorter one", addr, maxSocketPath, len(path))
	}
	if err := removeAbandoned(path); err != nil {
		return nil, err
	}
	return listenPrivately(path)
}

// removeAbandoned removes the socket of a process that has not ended orderly.
func removeAbandoned(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s exists and is no socket: give the path of a file that does not exist", path)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = c.Close()
		return fmt.Errorf("%s: another process listens there: end it, or give another path", path)
	}
	if !refusedConnection(err) {
		return err
	}
	return os.Remove(path)
}
