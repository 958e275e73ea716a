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

// direct has the story played, and returns how it went otherwise, if it did.
func direct(ctx context.Context, w io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "conclave-fencedstore-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) // temporary: what it leaves the system removes
	say := newTeller(w)
	store := newStore()
	url, stop, err := serve(store)
	if err != nil {
		return err
	}
	defer stop()

	say("", "Three workers form a group. The store is no member of it; it will see fences, nothing else.")
	cast, err := enter(ctx, say, dir, url)
	defer func() { err = errors.Join(err, cast.leave(err == nil)) }()
	if err != nil {
		return err
	}
	anna, ben := cast[0], cast[1]
	if err := play(ctx, say, anna, ben); err != nil {
		return err
	}
	value, refused := store.get(lockName)
	if value != "second by ben" || refused != 1 {
		return fmt.Errorf("the store has %q and refused %d writes", value, refused)
	}
	say("", "The store has %q. Without the fence it would have anna's, and ben's work would be lost.", value)
	return nil
}

func play(ctx context.Context, say teller, anna, ben *actor) error {
	say("", "anna works under the lock, and is paused at the worst moment.")
	if err := errors.Join(anna.begin(), anna.reach(ctx, "has looked")); err != nil {
		return err
	}
	say("", "ben wants the lock too. Its holder is silent, so he gets it when %v have passed.", sessionTTL)
	if err := errors.Join(ben.begin(), ben.reach(ctx, "gives the lock back")); err != nil {
		return err
	}
	say("", "anna is continued, and goes on where she was. For her no time has passed.")
	if err := anna.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	return anna.reach(ctx, "gives up")
}

// enter starts the workers; the later ones are told where the first one is.
func enter(ctx context.Context, say teller, dir, url string) (cast, error) {
	var all cast
	first := ""
	for _, name := range []string{"anna", "ben", "clara"} {
		a, err := newActor(say, name, "-dir", dir+"/"+name, "-join", first, "-store", url, fmt.Sprintf("-sleepy=%t", name == "anna"))
		if err != nil {
			return all, err
		}
		all = append(all, a)
		addr, err := a.hear(ctx, "listens on ")
		if err != nil {
			return all, err
		}
		if first == "" {
			first = addr
		}
	}
	for _, a := range all {
		if err := a.reach(ctx, "is in the group"); err != nil {
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
