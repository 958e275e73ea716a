package core

import (
	"errors"
	"fmt"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/conclave-go/conclave/cluster/inbox"
	"github.com/conclave-go/conclave/internal/metrics"
	"github.com/conclave-go/conclave/raftlog"
)

// maxEntries bounds the entries that are proposed and not applied.
const maxEntries = 4

// maxEntriesBytes bounds their bytes, unless there is only one: a renewal waits for what
// was proposed before it.
const maxEntriesBytes = 256 << 10

// proposal is an entry that was proposed.
type proposal struct {
	bytes int
	at    time.Duration // monotonic
}

// proposals is the entries that this leader has proposed and not applied yet.
type proposals struct {
	*raftNode
	commit   *metrics.Histogram // of Metrics
	inFlight []proposal
}

// mayPropose reports whether another entry may be proposed. The next one follows when the
// one before is durable here, without waiting for the other members: what arrives during
// a sync shares an entry, so that more entries in flight do not mean more syncs, and a
// release waits for no more than that sync.
func (p *proposals) mayPropose() bool {
	bytes := 0
	for _, each := range p.inFlight {
		bytes += each.bytes
	}
	stored, _ := p.log.LastIndex() // in memory: never fails
	return len(p.inFlight) == 0 || stored == p.last && len(p.inFlight) < maxEntries && bytes < maxEntriesBytes
}

// propose proposes the gathered commands as one entry, stamped with group time. When a
// deadline of the machine has passed, it proposes an empty batch: applying its time
// fires the deadline. An empty batch also settles a membership change.
func (c *Core) propose() error {
	if !c.clock.running || !c.proposals.mayPropose() {
		return nil
	}
	deadline, ok := c.machine.NextDeadline()
	due := ok && deadline <= c.clock.time && len(c.proposals.inFlight) == 0 // else what is in flight fires it
	settle := c.notices.maySettle()
	if c.inbox.Empty() && !settle && !due || c.node.BasicStatus().LeadTransferee != raft.None {
		return nil // during a transfer the inbox keeps what it has: the transfer may be abandoned
	}
	ordinary := inbox.MaxBatchBytes
	if c.log.IsShared() {
		ordinary = raftlog.SharedWrite // as long as this entry is written, the entries of other groups wait
	}
	data := appendEntryHeader(make([]byte, 0, min(c.inbox.Size(), ordinary)+128))
	level, _ := c.machine.Level()
	data, err := c.inbox.AppendBatch(data, level, c.clock.time, ordinary)
	if err != nil {
		return fmt.Errorf("encoding a batch: %w", err)
	}
	switch err := c.node.Propose(data); {
	case errors.Is(err, raft.ErrProposalDropped):
		c.inbox.Refused() // too much is uncommitted; the members retry
		return nil
	case err != nil:
		return fmt.Errorf("proposing: %w", err)
	}
	c.proposals.inFlight = append(c.proposals.inFlight, proposal{len(data), c.now})
	c.metrics.Commands.Observe(uint64(c.inbox.LastCommands()))
	if settle {
		c.notices.proposedSettling()
	}
	return nil
}

// proposalApplied reports that an entry of this term was applied. Where this member does
// not lead, another one has proposed it.
func (p *proposals) proposalApplied(now time.Duration) {
	if len(p.inFlight) > 0 {
		p.commit.ObserveDuration(now - p.inFlight[0].at)
		p.inFlight = p.inFlight[1:]
	}
}

// longest is the time since the oldest entry was proposed; 0: there is none.
func (p *proposals) longest(now time.Duration) time.Duration {
	if len(p.inFlight) == 0 {
		return 0
	}
	return now - p.inFlight[0].at
}

// The data of an entry is a header for the cluster, followed by a batch for the machine.
// The header is one byte, the version.
const (
	entryVersion = 2
	entryHeader  = 1
)

var errEntry = errors.New("entry of an unknown version")

func appendEntryHeader(b []byte) []byte { return append(b, entryVersion) }

// parseEntry returns the batch.
func parseEntry(data []byte) ([]byte, error) {
	switch {
	case len(data) > 0 && data[0] > entryVersion:
		return nil, fmt.Errorf("%w: version %d", ErrUpgradeRequired, data[0])
	case len(data) <= entryHeader || data[0] != entryVersion:
		return nil, errEntry
	}
	return data[entryHeader:], nil
}
