package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/conclave-go/conclave"
)

// teller prints a line with the time of day.
type teller func(format string, args ...any)

func newTeller(w io.Writer) teller {
	var mu sync.Mutex // one line at a time
	return func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(w, "%s  %s\n", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
	}
}

// candidate is a process that would lead, and wants to know who does.
type candidate struct {
	node     *conclave.Node
	election *conclave.Election
	name     string
	tick     time.Duration
	say      teller
}

// live campaigns until ctx ends or the node stops, and tells meanwhile who leads.
// The error says why the node stopped.
func (c *candidate) live(ctx context.Context) error {
	observing, over := context.WithCancel(ctx)
	var telling sync.WaitGroup
	telling.Go(func() { c.observe(observing) })
	err := c.election.Run(ctx, []byte(c.name), c.lead)
	over()
	telling.Wait()
	switch {
	case ctx.Err() != nil:
		return nil
	case c.node.Err() != nil:
		return c.node.Err()
	}
	return err
}

// lead is what only one process of the group is to do at a time. It ends when
// ctx does; Run then resigns, or campaigns again if the lead was lost.
func (c *candidate) lead(ctx context.Context, f conclave.Fence) error {
	c.say("LEADING with fence %v", f)
	ticks := time.NewTicker(c.tick)
	defer ticks.Stop()
	for n := 1; ; n++ {
		select {
		case <-ticks.C:
			// The fence goes with the work: what receives it refuses a smaller
			// one than it has seen, and so a leader that is too late.
			c.say("tick %d with fence %v", n, f)
		case <-ctx.Done():
			why := context.Cause(ctx)
			if errors.Is(why, conclave.ErrLockOwnershipLost) {
				c.say("LOST the lead, fence %v: another one may lead already", f)
			} else {
				c.say("resigning, fence %v", f)
			}
			return why
		}
	}
}

// observe tells who leads, and when nobody does, until ctx ends.
func (c *candidate) observe(ctx context.Context) {
	self := c.node.Status().ID
	for leader, err := range c.election.Observe(ctx) {
		switch {
		case err != nil:
			return // the last there is: ctx has ended, or the node has stopped
		case leader.Fence == 0:
			c.say("nobody leads")
		case leader.Node != self:
			c.say("%s leads with fence %v", leader.Value, leader.Fence)
		}
	}
}
