package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/conclave-go/conclave"
)

// shards is the number of shards of the store, the same in all processes.
const shards = 12

// logFunc prints one line with the time of day.
type logFunc func(format string, args ...any)

func newLog(w io.Writer) logFunc {
	var mu sync.Mutex // one line at a time
	return func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(w, "%s  %s\n", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
	}
}

// worker works on the shards that the group assigns to this process.
type worker struct {
	shards *conclave.Shards
	store  store
	name   string // of this process
	every  time.Duration
	logf   logFunc
}

// run works until ctx is done, or the node is closed.
func (w *worker) run(ctx context.Context) error { return w.shards.Run(ctx, w.work) }

// work counts in the file of a shard until ctx ends: because the shard moves or is
// lost, or the program ends. When it returns, the next owner may begin.
func (w *worker) work(ctx context.Context, shard int, fence conclave.Fence) error {
	c, err := w.store.open(shard, fence, w.name)
	if err == nil {
		defer c.close()
		w.logf("BEGINS shard %d with fence %v, at %d", shard, fence, c.value)
		err = w.count(ctx, c)
		w.logf("ENDS shard %d at %d: %s", shard, c.value, why(ctx, err))
	}
	if errors.Is(err, conclave.ErrStaleFence) {
		// The shard has a later owner, and this process has not learned of that
		// yet. So the shard is not this process's business before it is assigned
		// to it again.
		w.logf("shard %d is REFUSED: %v", shard, err)
		return nil
	}
	return err
}

// count writes again and again. It returns nil when ctx ends.
func (w *worker) count(ctx context.Context, c *counter) error {
	pause := time.NewTicker(w.every)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-pause.C:
			if err := c.increase(); err != nil {
				return err
			}
		}
	}
}

// why is why the work on a shard has ended.
func why(ctx context.Context, err error) string {
	switch cause := context.Cause(ctx); {
	case err != nil:
		return "a write has failed"
	case errors.Is(cause, conclave.ErrShardMoved):
		return "it moves to another process"
	case errors.Is(cause, conclave.ErrLockOwnershipLost):
		return "the session has ended"
	}
	return "this process gives it away"
}

// killCommand returns the command that ends this process without a graceful
// shutdown.
func killCommand() string {
	if runtime.GOOS == "windows" {
		return fmt.Sprintf("taskkill /F /PID %d", os.Getpid())
	}
	return fmt.Sprintf("kill -9 %d", os.Getpid())
}
