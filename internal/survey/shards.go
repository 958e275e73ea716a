package survey

import (
	"sync/atomic"
	"time"

	"github.com/conclave-go/conclave/internal/machine"
)

// shardPages bounds how much of the sets of shards one call of Look reads: so many pages, of 1,024 sets or 8,192 shards and workers and
// one set each. More than that is read by several calls.
const shardPages = 2

// Shards measures the shards of all sets of a group. The zero Shards is ready.
type Shards struct {
	// The sum of the pages that were read since the first set, and behind which set the next one begins; for Look.
	after string
	sum   ShardCounts

	known atomic.Pointer[shardsKnown]
}

// ShardCounts is what is known of the shards of a group.
type ShardCounts struct {
	All          int     // of sets that processes work on
	WithoutOwner int     // of those
	Seconds      float64 // that shards were without an owner so far, added up over the shards
}

type shardsKnown struct {
	ShardCounts
	at time.Time // when it was complete
}

// Look reads a part of the state. Calls must not overlap.
func (s *Shards) Look(m *machine.Machine) {
	s.look(time.Now(), func(after string) []machine.ShardsView {
		return machine.Ask[[]machine.ShardsView](m, machine.ShardSetsQuery{After: after})
	})
}

// look reads pages of the sets behind a name.
func (s *Shards) look(now time.Time, behind func(name string) []machine.ShardsView) {
	for range shardPages {
		page := behind(s.after)
		if len(page) == 0 {
			s.complete(now)
			return
		}
		for _, set := range page {
			s.sum.All += int(set.Count)
			s.sum.WithoutOwner += int(set.Count) - set.Owned
		}
		s.after = page[len(page)-1].Name
	}
}

// complete makes the sum known. What was without an owner the last time counts as such since then.
func (s *Shards) complete(now time.Time) {
	if before := s.known.Load(); before != nil {
		s.sum.Seconds = before.Seconds + float64(before.WithoutOwner)*now.Sub(before.at).Seconds()
	}
	s.known.Store(&shardsKnown{s.sum, now})
	s.after, s.sum = "", ShardCounts{}
}

// Read returns what is known: as of the last time that Look has come to the last set.
func (s *Shards) Read() ShardCounts {
	if known := s.known.Load(); known != nil {
		return known.ShardCounts
	}
	return ShardCounts{}
}
