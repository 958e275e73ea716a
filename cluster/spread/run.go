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
	// Transfer blocks until a group of the move has another leader, or the transfer has failed, or ctx is done.
	Transfer func(ctx context.Context, group uint32, m Move) Outcome
}

// Run transfers leaderships of this member that are due until ctx is done, one at a time.
func Run(ctx context.Context, cfg Config) {
	var h hysteresis
	again := time.NewTicker(cfg.Election)
	defer again.Stop()
	for {
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
		if first(ctx, cfg, h.look(cfg.Self, cfg.View())) == Failed {
			h.failed()
		}
	}
}

// first transfers the first group of a move in which the voter is up to date.
func first(ctx context.Context, cfg Config, m Move) (o Outcome) {
	for _, group := range m.Groups {
		if ctx.Err() != nil {
			return Refused
		}
		if o = cfg.Transfer(ctx, group, m); o != Refused {
			break
		}
	}
	return o
}
