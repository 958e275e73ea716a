package spread

import (
	"context"
	"time"
)

// Outcome is what has become of a transfer.
type Outcome int

const (
	// Refused: this member has not transferred anything, as it does not lead the group any more, or the voter is not up to date in it.
	Refused Outcome = iota
	// Moved: another member leads the group.
	Moved
	// Failed: the voter did not become the leader, and the group committed nothing for an election timeout.
	Failed
)

// Config is what Run needs of its member.
type Config struct {
	Self     uint64
	Election time.Duration
	View     func() View
	// Report sends to the other voters which voters this one reaches. It does not block.
	Report func(View)
	// Transfer blocks until a voter leads a group of the move, or the transfer has failed, or ctx is done.
	Transfer func(ctx context.Context, group uint32, to uint64, byPriority bool) Outcome
}

// period returns how often a member looks. It is no multiple of an election timeout: once in each, a leader forgets whether it has heard of a voter, and
// until the next heartbeat no transfer to that is possible. Looks in step with it would all come at that moment.
func period(election time.Duration) time.Duration { return election + election/8 }

// Run transfers leaderships of this member that are due until ctx is done, one at a time.
func Run(ctx context.Context, cfg Config) {
	var h hysteresis
	again := time.NewTicker(period(cfg.Election))
	defer again.Stop()
	for {
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
		v := cfg.View()
		if v.Unsettled() {
			cfg.Report(v)
		}
		m := h.look(cfg.Self, v)
		if group, to, o := first(ctx, cfg, m); m.Priority {
			h.byPriority.tried(group, to, o)
		} else if o == Failed {
			h.pause = failedLooks
		}
	}
}

// maxTries bounds the transfers to voters of higher priority that one look tries.
const maxTries = 64

// first transfers the first group of a move in which a voter of it is up to date, and returns what it has tried last.
func first(ctx context.Context, cfg Config, m Move) (group uint32, to uint64, o Outcome) {
	tries := 0
	for _, group = range m.Groups {
		for _, to = range m.To {
			if tries++; ctx.Err() != nil || m.Priority && tries > maxTries {
				return group, to, Refused
			}
			if o = cfg.Transfer(ctx, group, to, m.Priority); o != Refused {
				return group, to, o
			}
		}
	}
	return group, to, Refused
}
