package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/fencing"
)

// keyedJob is a key of a job that a command is run for.
type keyedJob struct {
	name, key string
	attempts  int
	keep      time.Duration

	unrecorded error // why the result of the run is not recorded; nil: it is, or the run was lost
}

func (j *keyedJob) validate() error {
	const longest = 3653 * 24 * time.Hour
	switch {
	case j.attempts < 0 || j.attempts > math.MaxInt32:
		return usagef("--attempts: want 0 (without bound) to %d, got %d", math.MaxInt32, j.attempts)
	case j.keep != 0 && (j.keep < time.Millisecond || j.keep > longest):
		return usagef("--keep: want 0 (not by time) or 1ms to %v, got %v", longest, j.keep)
	}
	return nil
}

func (p *program) jobCommand() *cobra.Command {
	var o tenancy
	var j keyedJob
	cmd := &cobra.Command{
		Use: "job NAME KEY -- COMMAND…", Short: "Run a command once for a key, over all machines",
		Long: "Run a command once for a key, over all machines: wait until no other run of the key is under way, run the command unless one has succeeded for the key already, and " +
			"record how it ended. If the exit code is 0, the key is closed. After another one, or when the process died, the key may run again: here or elsewhere, " +
			"by the next conclave job for it.\n\n" +
			"From the crontab of several machines it runs the command on one of them. The key is the time or the date for which it runs, the same on all: keys " +
			"have to ascend, with numbers compared as numbers, since the group retains the last 64 of a job and refuses older ones. Runs of different keys may overlap: " +
			"a resource that checks the fence by the name of the job alone refuses the earlier one.\n" +
			strings.Replace(afterwards, "  123  ", "  122  not run: the key is closed\n  123  ", 1),
		Example:     "  conclave job nightly \"$(date -u +%F)\" -- ./job.sh\n  conclave job nightly \"$(date -u +%F)\" --attempts 1 -- ./job.sh",
		Annotations: map[string]string{runsChild: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch dash := cmd.ArgsLenAtDash(); {
			case dash < 0 && len(args) > 2:
				return usagef("unexpected argument %q: put -- before the command that is to run", args[2])
			case len(args) < 2 || dash >= 0 && dash < 2:
				return usagef("missing NAME or KEY")
			case dash > 2:
				return usagef("unexpected argument %q: want NAME and KEY before --", args[2])
			case len(args) == 2:
				return usagef("missing the command behind --")
			}
			j.name, j.key = args[0], args[1]
			if err := errors.Join(o.validate(), j.validate()); err != nil {
				return err
			}
			return p.job(cmd.Context(), o, j, args[2:])
		},
	}
	o.define(cmd.Flags())
	cmd.Flags().IntVar(&j.attempts, "attempts", 0, "run the key at most `n` times, if the command fails or its process dies; 0: without bound")
	cmd.Flags().DurationVar(&j.keep, "keep", 0, "refuse the key so long after its last run ended; 0: not by time")
	cmd.Flags().DurationVar(&o.wait, "wait", 0, "how long to wait for a run elsewhere; 0: until it has ended")
	return cmd
}

// job waits for a run of a key and runs argv for it.
func (p *program) job(ctx context.Context, o tenancy, j keyedJob, argv []string) error {
	p.survivePipes()
	c, err := p.dial(ctx)
	if err != nil {
		return err
	}
	defer p.closeClient(c)
	contender := contender{program: p, client: c, tenancy: o}
	l, err := contender.acquire(ctx, func(ctx context.Context, s *conclave.Session) (lease, error) { return j.take(ctx, s) })
	if err != nil {
		return err
	}
	if err := p.under(ctx, o, l, argv); err != nil {
		return err
	}
	return withCode(exitItself, j.unrecorded)
}

// errCommand is why a run has failed.
type errCommand struct{ why string }

func (e errCommand) Error() string { return e.why }

// take waits for a run of the key, which goes on until the lease is released.
func (j *keyedJob) take(ctx context.Context, s *conclave.Session) (lease, error) {
	began, result, ended := make(chan conclave.Fence), make(chan error, 1), make(chan error, 1)
	job := s.Job(j.name, conclave.Attempts(j.attempts), conclave.Keep(j.keep))
	go func() {
		// Its context bounds the wait. The run ends with the session, or with the command.
		ended <- job.Once(ctx, j.key, func(_ context.Context, f conclave.Fence) error {
			began <- f
			return <-result
		})
	}()
	var fence conclave.Fence
	select {
	case fence = <-began:
	case err := <-ended:
		return lease{}, err
	}
	release := func(context.Context) error { // until the result is recorded, or the session has ended
		err := <-ended
		if errors.As(err, new(errCommand)) && !errors.Is(err, conclave.ErrLockOwnershipLost) {
			return nil // recorded
		}
		j.unrecorded = err
		return err
	}
	l := leaseOf("job", s, grant{tokens: []fencing.Token{{Lock: j.name, Fence: fence}}, lost: s.Done(), release: release})
	l.more = []string{"CONCLAVE_JOB=" + j.name, "CONCLAVE_KEY=" + j.key}
	l.ended = func(code int, err error) {
		switch {
		case err != nil:
			result <- errCommand{err.Error()}
		case code != 0:
			result <- errCommand{fmt.Sprint("exit code ", code)}
		default:
			result <- nil
		}
	}
	return l, nil
}
