//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/conclave-go/conclave"
)

// jobs is how many jobs there are. Each has a key for each keyInterval, which several clients run at the same time.
const (
	jobs        = 3
	keyInterval = time.Second
)

// attemptsOf is how often a key of a job may run; 0: without bound.
func attemptsOf(job int) int { return job }

// What a run is to be recorded as.
const (
	runDone   = "done"
	runFailed = "failed"
)

var errGaveUp = errors.New("gave up")

// jobTurn runs a key, or waits for the end of the run that another client has under way. At times it runs a job with a period.
func (c *client) jobTurn() int {
	if c.chance(15) {
		return c.everyTurn()
	}
	n, key := c.random.IntN(jobs), fmt.Sprint(now()/int64(keyInterval))
	job, limit := fmt.Sprintf("%s/job/%d", c.phase, n), attemptsOf(n)
	call := record{Op: opRun, Name: job + " " + key, Hold: c.label(), Limit: limit}
	ctx, cancel := c.within(4*time.Second, 15*time.Second) // longer than a process is stopped: it may trust its run afterwards
	defer cancel()
	op, began, id := call.Op, now(), c.history.call(call)
	err := c.access.Job(job, conclave.Attempts(limit)).Once(ctx, key, func(ctx context.Context, f conclave.Fence) error {
		c.answered(op, id, began, record{Fence: uint64(f)}, nil)
		err := c.runKey(ctx, call, f)
		end := record{Op: opEnd, Name: call.Name, Hold: call.Hold, Fence: uint64(f), Value: runDone}
		if err != nil {
			end.Value = runFailed
		}
		op, began, id = end.Op, now(), c.history.call(end)
		return err
	})
	c.answered(op, id, began, closedBy(err), recordedAs(err))
	return 2
}

// period is that of the job that clients run with Every.
const period = 250 * time.Millisecond

// everyTurn runs a job with a period for a while, as some clients do at the same time. What a run is recorded as, Every does not say.
func (c *client) everyTurn() int {
	ctx, cancel := c.within(time.Second, 2*epoch)
	defer cancel()
	name, n := c.object("every", 1), 1
	call := record{Op: opRun, Name: name, Hold: c.label(), Every: period}
	began, id := now(), c.history.call(call)
	err := c.access.Job(name).Every(ctx, period, func(ctx context.Context, f conclave.Fence) error {
		c.answered(call.Op, id, began, record{Fence: uint64(f)}, nil)
		err := c.runKey(ctx, call, f)
		c.history.call(record{Op: opEnd, Name: name, Hold: call.Hold, Fence: uint64(f), Every: period})
		call.Hold, began = c.label(), now()
		id = c.history.call(call)
		n += 2
		return err
	})
	c.answered(call.Op, id, began, record{}, err)
	return n
}

// runKey is the function of a job. Some runs take long, so that a fault meets them, and some give up.
func (c *client) runKey(ctx context.Context, call record, f conclave.Fence) error {
	h, of := contextHolder{ctx, f}, checkOf(opCheck, call.Name, call.Hold, f)
	c.useAs(h, of)
	if c.chance(30) {
		c.rest(ctx, time.Duration(c.random.Int64N(int64(3*time.Second)))) // useAs looks at ctx
		c.useAs(h, of)
	}
	if ctx.Err() != nil || c.chance(20) {
		return errGaveUp
	}
	return nil
}

// recordedAs is the error of the end of a run: that the function gave up is recorded.
func recordedAs(err error) error {
	if err == errGaveUp { //nolint:errorlint // as it is: else it is joined with what the end has failed with
		return nil
	}
	return err
}

// closedBy has why a key is closed.
func closedBy(err error) record {
	var done *conclave.JobDoneError
	if !errors.As(err, &done) {
		return record{}
	}
	return record{Value: done.Run.Result.String(), Fence: uint64(done.Run.Fence)}
}
