package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/fencing"
)

// runsChild marks the commands that pass the exit code of another command on.
const runsChild = "child"

// tenancy is how a command is run under a lock or as a leader.
type tenancy struct {
	ttl, grace, wait time.Duration
	label, value     string
	try, once        bool
	shared           bool // the locks are held beside others that share them
	refuseDeadlock   bool // a wait that would close a cycle is refused
	maxHold          time.Duration
	permits, of      int // of a semaphore and its limit; 0: a lock
}

func (o *tenancy) define(f *pflag.FlagSet) {
	f.DurationVar(&o.ttl, "ttl", 10*time.Second, "for how long the lease outlives this process, if it dies; 1s to 24h")
	f.DurationVar(&o.grace, "grace", 5*time.Second, "when the lease is lost: the time from SIGTERM to SIGKILL, 0 to 59s")
}

func (o *tenancy) validate() error {
	switch {
	case o.grace < 0 || o.grace > 59*time.Second:
		return usagef("--grace: want 0 to 59s, got %v", o.grace)
	case o.wait < 0:
		return usagef("--wait: want 0 or more, got %v", o.wait)
	case o.maxHold != 0 && (o.maxHold < time.Millisecond || o.maxHold > 24*time.Hour):
		return usagef("--max-hold: want 0 (none) or 1ms to 24h, got %v", o.maxHold)
	case o.try && o.wait > 0:
		return usagef("--try does not wait, so --wait has no effect")
	case o.try && o.refuseDeadlock:
		return usagef("--try does not wait, so --refuse-deadlock has no effect")
	}
	return nil
}

// validatePermits refuses what is no request for permits.
func (o *tenancy) validatePermits(flags *pflag.FlagSet) error {
	switch {
	case o.of < 1 || o.of > math.MaxInt32:
		return usagef("--of: want 1 to %d, got %d", math.MaxInt32, o.of)
	case o.permits < 1 || o.permits > o.of:
		return usagef("--permits: want 1 to %d, the limit, got %d", o.of, o.permits)
	case flags.Changed("label"):
		return usagef("--label has no effect on permits")
	case o.refuseDeadlock:
		return usagef("--refuse-deadlock has no effect on permits")
	}
	return nil
}

const afterwards = `
The command gets the fence in CONCLAVE_FENCE, as a decimal number. CONCLAVE_FENCES has it as the header
Fencing-Token of package fencing does. The resource that the lock protects must check it: no lock can keep a command that was paused from
acting late.

An outage of the group, however long, does not end the wait: --timeout is for the first session alone. What waited has a new position in the
queue afterwards if its session has ended.

When the lease is lost, because the group could not be reached for the TTL, an operator closed the session, or --max-hold is over, the command gets SIGTERM and after
--grace SIGKILL. The group grants nothing to another owner before that is over: the session has a lock-delay of the grace and a second. Signals
are passed on to the command. On Unix the command and its children are a process group, which gets the signals, unless standard input is a
terminal; then only the command itself does. After a loss what the command has started is killed when it has ended. On Linux the command
is killed if this process dies.

The exit code is the command's, or
  123  the lease was lost, and the command stopped
  124  not acquired: held by another with --try, --wait is over, or a deadlock is refused
  125  this program failed: no member can be reached, …
  126  the command cannot be run
  127  the command was not found
  128+N  the command was ended by the signal N, or this program by it before the command ran`

func (p *program) lockCommand() *cobra.Command {
	var o tenancy
	cmd := &cobra.Command{
		Use: "lock NAME… [-- COMMAND…]", Short: "Run a command while holding a lock",
		Long: "Run a command while holding a lock: wait for the lock, run the command, release the lock. Without a command, hold the lock until interrupted.\n\n" +
			"Several locks are acquired as a whole: the command holds none of them while it waits, so commands that wait cannot wait for each other in a cycle. They are " +
			"released and lost together. They need a COMMAND: without -- it would be taken for a lock.\n\n" +
			"With --permits and --of it is permits of a semaphore in place of a lock: commands on all machines run at the same time as long as their " +
			"permits are no more than the limit.\n\n" +
			"With --shared it runs beside other commands with --shared, and not beside one without. One that waits without it lets none in before it.\n\n" +
			"With --refuse-deadlock a lock is not waited for, and the exit code is 124, if that would close a cycle of sessions that wait for each other. A command that " +
			"waits holds nothing, so this happens only with several locks, while a member of the group runs a build that does not know sets. " +
			"A command inside another one has a session of its own, and the group does not know that the outer one waits for it: name all locks in one command.\n" + afterwards,
		Example:     "  conclave lock nightly -- ./job.sh\n  conclave lock nightly --try -- ./job.sh || echo busy\n  conclave lock encoders --permits 1 --of 3 -- ./encode.sh",
		Annotations: map[string]string{runsChild: "yes"}, ValidArgsFunction: p.completeLock,
		RunE: func(cmd *cobra.Command, args []string) error {
			names, argv, err := split(cmd, args, fencesAtMost)
			if err == nil {
				err = o.validate()
			}
			if err == nil && o.permits > 0 && len(names) > 1 {
				err = usagef("--permits: want one semaphore, got %d names", len(names))
			}
			if flags := cmd.Flags(); err == nil && flags.Changed("permits") {
				err = o.validatePermits(flags)
			}
			if err != nil {
				return err
			}
			return p.lock(cmd.Context(), o, names, argv)
		},
	}
	o.define(cmd.Flags())
	cmd.Flags().BoolVar(&o.try, "try", false, "do not wait if another owner holds the lock")
	cmd.Flags().DurationVar(&o.wait, "wait", 0, "how long to wait for the lock; 0: until it is granted")
	cmd.Flags().StringVar(&o.label, "label", "", "a `text` that conclave explain shows (default: the command's name)")
	cmd.Flags().IntVar(&o.permits, "permits", 0, "acquire this `number` of permits of the semaphore NAME, in place of a lock")
	cmd.Flags().IntVar(&o.of, "of", 0, "the `limit` of the semaphore, in which all its users must agree")
	cmd.Flags().BoolVar(&o.shared, "shared", false, "hold the lock beside others that hold it with --shared")
	cmd.Flags().BoolVar(&o.refuseDeadlock, "refuse-deadlock", false, "do not wait if that would close a cycle of sessions that wait for each other")
	cmd.Flags().DurationVar(&o.maxHold, "max-hold", 0, "lose the lock so long after the grant, though this process lives; 0: never, or 1ms to 24h")
	cmd.MarkFlagsRequiredTogether("permits", "of")
	cmd.MarkFlagsMutuallyExclusive("permits", "shared")
	return cmd
}

func (p *program) electCommand() *cobra.Command {
	var o tenancy
	host, _ := os.Hostname()
	cmd := &cobra.Command{
		Use: "elect NAME [-- COMMAND…]", Short: "Run a command while leading an election",
		Long: "Run a command while leading an election: campaign, run the command, resign when it ends. After a loss campaign again, unless --once is " +
			"given. Without a command, lead until interrupted. conclave elections shows the leaders.\n" + afterwards,
		Annotations: map[string]string{runsChild: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			names, argv, err := split(cmd, args, 1)
			if err == nil {
				err = o.validate()
			}
			if err != nil {
				return err
			}
			return p.elect(cmd.Context(), o, names[0], argv)
		},
	}
	o.define(cmd.Flags())
	cmd.Flags().StringVar(&o.value, "value", host, "a `text` that observers see")
	cmd.Flags().BoolVar(&o.once, "once", false, "end after a loss")
	cmd.Flags().DurationVar(&o.wait, "wait", 0, "how long to campaign; 0: until elected")
	return cmd
}

// split takes the names from the command that follows "--", and sorts them.
func split(cmd *cobra.Command, args []string, most int) (names, argv []string, err error) {
	dash := cmd.ArgsLenAtDash()
	switch {
	case len(args) == 0 || dash == 0:
		return nil, nil, usagef("missing NAME")
	case dash < 0 && len(args) > 1:
		return nil, nil, usagef("unexpected argument %q: put -- before the command that is to run", args[1])
	case dash > most:
		return nil, nil, usagef("unexpected argument %q: want at most %d before --", args[most], most)
	case dash == len(args):
		return nil, nil, usagef("missing the command behind --")
	case dash < 0:
		dash = 1
	}
	names = slices.Sorted(slices.Values(args[:dash]))
	for i := range names[1:] {
		if names[i] == names[i+1] {
			return nil, nil, usagef("lock %q is named twice", names[i])
		}
	}
	return names, args[dash:], nil
}

// lock waits for locks, or for permits of a semaphore, and runs argv under them.
func (p *program) lock(ctx context.Context, o tenancy, names, argv []string) error {
	p.survivePipes()
	if o.label == "" && len(argv) > 0 {
		label := strings.ToValidUTF8(filepath.Base(argv[0]), "?")
		o.label = strings.ToValidUTF8(label[:min(len(label), 128)], "")
	}
	c, err := p.dial(ctx)
	if err != nil {
		return err
	}
	defer p.closeClient(c)
	contender := contender{program: p, client: c, tenancy: o}
	l, err := contender.acquire(ctx, func(ctx context.Context, s *conclave.Session) (lease, error) {
		if o.permits > 0 {
			return o.takePermits(ctx, s, names[0])
		}
		return o.takeLocks(ctx, s, names)
	})
	if err != nil {
		return err
	}
	return p.under(ctx, o, l, argv)
}

// elect runs argv whenever this process leads.
func (p *program) elect(ctx context.Context, o tenancy, name string, argv []string) error {
	p.survivePipes()
	c, err := p.dial(ctx)
	if err != nil {
		return err
	}
	defer p.closeClient(c)
	contender := contender{program: p, client: c, tenancy: o, election: name}
	for {
		l, err := contender.acquire(ctx, func(ctx context.Context, s *conclave.Session) (lease, error) {
			e := s.Election(name)
			fence, err := e.Campaign(ctx, []byte(o.value))
			if err != nil {
				return lease{}, err
			}
			return leaseOf("election", s, grant{[]fencing.Token{{Lock: name, Fence: fence}}, e.Lost(), e.Resign, nil}), nil
		})
		if err != nil {
			return err
		}
		err = p.under(ctx, o, l, argv)
		if !errors.Is(err, errLost) || o.once || p.isStopping() {
			return err
		}
		p.tell(fmt.Sprint(err, " - campaigning again"))
	}
}

// releaseLimit bounds the release, which is pursued until then if the group does not answer. Afterwards the
// session expires.
const releaseLimit = 5 * time.Second

// errLost: the lease was lost.
var errLost = errors.New("lost")

// under runs argv until it ends or the lease is lost, and releases the lease.
func (p *program) under(ctx context.Context, o tenancy, l lease, argv []string) error {
	var err error
	lost := false
	if len(argv) == 0 {
		p.saying.Go(func() { // a reader that has stopped must not keep the lock
			fmt.Fprintf(p.stdout, "%s %s is held with fence %s: interrupt to release it\n", l.kind, name(l.name), l.fence)
		})
		select {
		case <-ctx.Done():
		case <-l.lost:
			lost = true
		}
	} else {
		p.code, lost, err = p.supervise(ctx, argv, append(os.Environ(), l.environment()...), l, o.grace)
		if l.ended != nil {
			l.ended(p.code, err)
		}
	}
	releasing, cancel := context.WithTimeout(context.Background(), releaseLimit)
	defer cancel()
	released := l.release(releasing)
	p.said() // for the reader, after all that others wait for
	switch {
	case errors.Is(released, conclave.ErrHoldExpired):
		return withCode(exitLost, fmt.Errorf("conclave: %s: %w: it reached --max-hold %v, and another owner may hold it now", l, errLost, o.maxHold))
	case lost, errors.Is(released, conclave.ErrLockOwnershipLost):
		return withCode(exitLost, fmt.Errorf("conclave: %s: %w: another owner may hold it now", l, errLost))
	case released != nil:
		p.tell(fmt.Sprint(released, " - it is released when its session ends, by its TTL at the latest"))
	}
	return err
}
