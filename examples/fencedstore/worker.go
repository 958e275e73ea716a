//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/conclave-go/conclave"
)

// sessionTTL is how long a silent holder keeps its lock. It is short because
// the story waits for it to pass.
const sessionTTL = 2 * time.Second

// worker is a program that writes to the store when it holds the lock.
type worker struct {
	name, dir, join, store string
	sleepy                 bool
}

// run opens the worker's member. A line of input makes it work; the end of the
// input, or of who holds its other end, ends it.
func (w *worker) run(ctx context.Context, in io.Reader, out io.Writer) error {
	say := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	say("listens on %s", l.Addr())
	cfg := &conclave.Config{
		Name: w.name, Dir: w.dir, Listener: l, Expect: 3,
		// The one that is paused may lead the group. The others' sessions have
		// to outlive the election of another leader.
		SessionTTL: sessionTTL, ElectionTimeout: sessionTTL / 6, HeartbeatInterval: sessionTTL / 60,
	}
	if w.join != "" {
		cfg.Join = []string{w.join}
	}
	node, err := conclave.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer node.Close(ctx) // takes leave; there is nobody to tell if it cannot
	say("is in the group")
	for orders := bufio.NewScanner(in); orders.Scan(); {
		if err := w.work(ctx, node.FencedLock(lockName), say); err != nil {
			return err
		}
	}
	return nil
}

// work is what a careful program does: take the lock, look whether it is still
// there, write.
func (w *worker) work(ctx context.Context, lock *conclave.FencedLock, say func(string, ...any)) error {
	say("asks for the lock")
	fence, err := lock.Lock(ctx)
	if err != nil {
		return err
	}
	say("holds the lock, fence %v", fence)
	if err := w.write(ctx, fence, "first by "+w.name); err != nil {
		return err
	}
	say("writes \"first by %s\" with fence %v; the store keeps it", w.name, fence)
	if _, err := lock.Fence(); err != nil { // looks at the clock
		return err
	}
	if w.sleepy {
		say("has looked: the lock is its own. Now it is PAUSED, before it can write")
		pause()
	}
	err = w.write(ctx, fence, "second by "+w.name)
	if err == nil {
		say("writes \"second by %s\" with fence %v; the store keeps it", w.name, fence)
		say("gives the lock back")
		return lock.Unlock(ctx)
	}
	say("writes \"second by %s\" with fence %v; the store REFUSES it: %v", w.name, fence, err)
	_, err = lock.Fence()
	if !errors.Is(err, conclave.ErrLockOwnershipLost) {
		return fmt.Errorf("the store refused a holder: %w", err)
	}
	say("looks at the lock again: %v", err)
	if err := lock.Unlock(ctx); !errors.Is(err, conclave.ErrLockOwnershipLost) {
		return err
	}
	say("gives up what it held; it may queue up anew")
	return nil
}

// pause stops this process as a debugger, a suspended machine or a long garbage
// collection would, until somebody continues it. The stop takes effect a moment
// after it was asked for, so wait for the other signal.
func pause() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err == nil {
		<-continued
	}
}

// write sends a value to the store, with the fence.
func (w *worker) write(ctx context.Context, f conclave.Fence, value string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, w.store+"/"+lockName, strings.NewReader(value))
	if err != nil {
		return err
	}
	req.Header.Set(fenceHeader, strconv.FormatUint(uint64(f), 10))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	reason, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(strings.TrimSpace(string(reason)))
	}
	return err
}
