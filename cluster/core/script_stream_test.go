package core

import (
	"cmp"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
)

// stream is a snapshot on its way, as cluster/replica/snapshot_send.go streams one.
type stream struct {
	from      *player
	process   int // of the sender; 0: another stream has replaced this one
	to        uint64
	message   *raftpb.Message
	pairs     [][2][]byte // of the state
	digest    uint64
	confirmed bool
	offered   bool // it has arrived
	done      bool
	sent      error // how it ended, once it is done; before that: it is to end so
}

// beginStream reads the state on the disk and asks for its confirmation.
func (p *player) beginStream(m *raftpb.Message) {
	view, err := p.log.View()
	if err != nil {
		p.t.Fatal(err)
	}
	s := &stream{from: p, process: p.starts, to: m.GetTo(), message: Snapshot(m, view), digest: view.Digest}
	err = view.Each(func(key, value []byte) error {
		s.pairs = append(s.pairs, [2][]byte{slices.Clone(key), slices.Clone(value)})
		return nil
	})
	if err := cmp.Or(err, view.Close()); err != nil {
		p.t.Fatal(err)
	}
	for _, former := range p.group.streams {
		if former.from == p && former.to == s.to {
			former.done, former.process = true, 0 // replaced, and not reported
		}
	}
	p.group.streams = append(p.group.streams, s)
	p.group.printf("%d: has a snapshot of %d for %d", p.id, view.Index, s.to)
	p.ConfirmSnapshot(s.to, view.Index, func(err error) {
		if err != nil {
			p.group.printf("%d: the snapshot for %d is refused: %v", p.id, s.to, err)
			s.sent, s.done = err, true
			return
		}
		p.group.printf("%d: the snapshot for %d is confirmed", p.id, s.to)
		s.confirmed = true
	})
}

// stream carries on the snapshots that are on their way, and reports whether something has happened.
func (g *players) stream() (busy bool) {
	for _, s := range slices.Clone(g.streams) {
		to := g.all[s.to]
		switch {
		case s.sent != nil:
			s.done = true
		case s.done || !s.confirmed || g.paused || s.offered:
		case to == nil || !to.up || g.cut[link(s.from.id, s.to)]:
			s.sent, s.done = errUnanswered, true
		default:
			s.offered = true
			s.arrive(to)
			return true
		}
		if s.done {
			busy = true
			g.streams = slices.DeleteFunc(g.streams, func(other *stream) bool { return other == s })
			if s.from.up && s.from.starts == s.process {
				s.from.SnapshotSent(s.to, s.sent == nil)
			}
		}
	}
	return busy
}

// arrive stages the snapshot and offers it.
func (s *stream) arrive(to *player) {
	stage, err := to.log.Stage()
	if err != nil {
		to.t.Fatal(err)
	}
	for _, pair := range s.pairs {
		if err := stage.Put(pair[0], pair[1]); err != nil {
			to.t.Fatal(err)
		}
	}
	generation, err := stage.Finish()
	if err != nil {
		to.t.Fatal(err)
	}
	to.ReceiveSnapshot(s.from.id, s.message, Staged{Generation: generation, Digest: s.digest, Done: func(err error) {
		if s.sent, s.done = err, true; err != nil {
			to.group.printf("%d: discards the snapshot of %d: %v", to.id, s.message.GetSnapshot().GetMetadata().GetIndex(), err)
		}
	}})
}
