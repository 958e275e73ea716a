//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
)

// direct runs the story. It returns an error if anything differs from it.
func direct(ctx context.Context, w io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "conclave-fencedstore-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) // a leftover is in the system's temporary folder
	logf := newLog(w)
	store := newStore()
	url, stop, err := serve(store)
	if err != nil {
		return err
	}
	defer stop()

	logf("", "Three workers form a group. The store is not a member; it sees fences, nothing else.")
	cast, err := startWorkers(ctx, logf, dir, url)
	defer func() { err = errors.Join(err, cast.end(err == nil)) }()
	if err != nil {
		return err
	}
	anna, ben := cast[0], cast[1]
	if err := play(ctx, logf, anna, ben); err != nil {
		return err
	}
	value, refused := store.get(lockName)
	if value != "second by ben" || refused != 1 {
		return fmt.Errorf("the store has %q and refused %d writes", value, refused)
	}
	logf("", "The store has %q. Without the fence anna would have overwritten it.", value)
	return nil
}

func play(ctx context.Context, logf logFunc, anna, ben *actor) error {
	logf("", "anna works under the lock, and is paused at the worst moment.")
	if err := errors.Join(anna.work(), anna.await(ctx, "has checked")); err != nil {
		return err
	}
	logf("", "ben requests the lock too. The paused holder does not renew its session, which expires after %v.", sessionTTL)
	if err := errors.Join(ben.work(), ben.await(ctx, "releases the lock")); err != nil {
		return err
	}
	logf("", "anna is continued, and goes on where it was paused, as if no time had passed.")
	if err := anna.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	return anna.await(ctx, "gives up")
}

// startWorkers starts the workers; the later ones join the first.
func startWorkers(ctx context.Context, logf logFunc, dir, url string) (cast, error) {
	var all cast
	first := ""
	for _, name := range []string{"anna", "ben", "clara"} {
		a, err := newActor(logf, name, "-dir", dir+"/"+name, "-join", first, "-store", url, fmt.Sprintf("-pause=%t", name == "anna"))
		if err != nil {
			return all, err
		}
		all = append(all, a)
		addr, err := a.read(ctx, "listens on ")
		if err != nil {
			return all, err
		}
		if first == "" {
			first = addr
		}
	}
	for _, a := range all {
		if err := a.await(ctx, "is in the group"); err != nil {
			return all, err
		}
	}
	return all, nil
}

func serve(h http.Handler) (url string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: h}
	go server.Serve(l) // until stop; a failure shows in the workers' writes
	return "http://" + l.Addr().String(), func() { server.Close() }, nil
}
