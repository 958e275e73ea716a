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

// candidate campaigns in the election and observes it.
type candidate struct {
	node     *conclave.Node
	election *conclave.Election
	name     string
	tick     time.Duration
	logf     logFunc
}

// run campaigns and prints each leader until ctx is done or the node stops. It
// returns nil if ctx ended it, or else why the node stopped.
func (c *candidate) run(ctx context.Context) error {
	observing, campaigned := context.WithCancel(ctx)
	var printing sync.WaitGroup
	printing.Go(func() { c.observe(observing) })
	err := c.election.Run(ctx, []byte(c.name), c.lead)
	campaigned()
	printing.Wait()
	switch {
	case ctx.Err() != nil:
		return nil
	case c.node.Err() != nil:
		return c.node.Err()
	}
	return err
}

// lead is the work of the leader; at most one process at a time runs it. It
// returns when ctx is done. Run then resigns, or campaigns again if the lead was
// lost.
func (c *candidate) lead(ctx context.Context, f conclave.Fence) error {
	c.logf("LEADING with fence %v", f)
	c.logf("to crash this leader, run: %s", killCommand())
	ticks := time.NewTicker(c.tick)
	defer ticks.Stop()
	for n := 1; ; n++ {
		select {
		case <-ticks.C:
			// Each request of the leader carries the fence. Its receiver refuses a
			// fence smaller than the largest one seen, and so a deposed leader.
			c.logf("tick %d with fence %v", n, f)
		case <-ctx.Done():
			cause := context.Cause(ctx)
			if errors.Is(cause, conclave.ErrLockOwnershipLost) {
				c.logf("LOST the lead, fence %v: another candidate may lead already", f)
			} else {
				c.logf("resigning, fence %v", f)
			}
			return cause
		}
	}
}

// observe prints each change of the leader until ctx is done.
func (c *candidate) observe(ctx context.Context) {
	self := c.node.Status().ID
	for leader, err := range c.election.Observe(ctx) {
		switch {
		case err != nil:
			return // ctx is done, or the node has stopped
		case leader.Fence == 0:
			c.logf("no leader")
		case leader.Node != self:
			c.logf("%s leads with fence %v", leader.Value, leader.Fence)
		}
	}
}

// killCommand returns the command that ends this process without a graceful
// shutdown.
func killCommand() string {
	if runtime.GOOS == "windows" {
		return fmt.Sprintf("taskkill /F /PID %d", os.Getpid())
	}
	return fmt.Sprintf("kill -9 %d", os.Getpid())
}
