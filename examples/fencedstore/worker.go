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

// sessionTTL is how long a holder may go without renewing its session. The story waits
// for it to expire. With a much shorter one a busy machine that stalls would also end the
// sessions of the workers that run.
const sessionTTL = 10 * time.Second

// worker is a program that writes to the store while it holds the lock.
type worker struct {
	name, dir, join, store string
	pauses                 bool
}

// run opens the worker's member. Each line of the input makes it work once; the
// end of the input, which the end of the director brings too, ends it.
func (w *worker) run(ctx context.Context, in io.Reader, out io.Writer) error {
	logf := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	logf("listens on %s", l.Addr())
	cfg := &conclave.Config{
		Name: w.name, Dir: w.dir, Listener: l, Expect: 3,
		// The paused member may be the leader of the group. The sessions of the
		// others must outlive the election of a new one.
		SessionTTL: sessionTTL, ElectionTimeout: sessionTTL / 10, HeartbeatInterval: sessionTTL / 100,
	}
	if w.join != "" {
		cfg.Join = []string{w.join}
	}
	node, err := conclave.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer shutDown(node)
	logf("is in the group")
	for orders := bufio.NewScanner(in); orders.Scan(); {
		if err := w.work(ctx, node.FencedLock(lockName), logf); err != nil {
			return err
		}
	}
	return nil
}

// shutDown closes the node gracefully. The context of run may be done, so Close
// gets one of its own.
func shutDown(node *conclave.Node) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = node.Close(ctx) // the worker holds nothing any more
}

// work does what a careful program does: acquire the lock, check that it is still
// held, write.
func (w *worker) work(ctx context.Context, lock *conclave.FencedLock, logf func(string, ...any)) error {
	logf("requests the lock")
	fence, err := lock.Lock(ctx)
	if err != nil {
		return err
	}
	logf("holds the lock, fence %v", fence)
	if err := w.write(ctx, fence, "first by "+w.name); err != nil {
		return err
	}
	logf("writes \"first by %s\" with fence %v; the store accepts it", w.name, fence)
	if _, err := lock.Fence(); err != nil { // checks the local deadline
		return err
	}
	if w.pauses {
		logf("has checked that it holds the lock. It is PAUSED now, before it can write")
		pause()
	}
	err = w.write(ctx, fence, "second by "+w.name)
	if err == nil {
		logf("writes \"second by %s\" with fence %v; the store accepts it", w.name, fence)
		logf("releases the lock")
		return lock.Unlock(ctx)
	}
	logf("writes \"second by %s\" with fence %v; the store REFUSES it: %v", w.name, fence, err)
	_, err = lock.Fence()
	if !errors.Is(err, conclave.ErrLockOwnershipLost) {
		return fmt.Errorf("the store refused a holder: %w", err)
	}
	logf("checks the lock again: %v", err)
	if err := lock.Unlock(ctx); !errors.Is(err, conclave.ErrLockOwnershipLost) {
		return err
	}
	logf("gives up the lost hold; it may queue for the lock again")
	return nil
}

// pause stops this process, as a debugger, a suspended machine or a long garbage
// collection would, until SIGCONT. SIGSTOP takes effect only a moment after Kill
// returns, so pause waits for SIGCONT too.
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
