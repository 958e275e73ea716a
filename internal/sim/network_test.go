package sim

import (
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/core"
)

// network carries between members what has been encoded.
type network struct {
	loss, double      float64
	quickest, slowest time.Duration
	cut               [][]bool          // from, to
	clogged           [][]time.Duration // until when
}

func wholeNetwork(n int) network {
	net := network{quickest: 100 * time.Microsecond, slowest: time.Millisecond, cut: make([][]bool, n), clogged: make([][]time.Duration, n)}
	for i := range net.cut {
		net.clogged[i] = make([]time.Duration, n)
		net.cut[i] = make([]bool, n)
	}
	return net
}

// carry brings something to a process, if there is one when it comes. false
// says that it was lost in a way that the sender could notice.
func (w *world) carry(from, to int, arrive func(*life)) bool {
	if w.network.cut[from][to] || w.members[to].life == nil {
		return false
	}
	if w.chance(w.network.loss) {
		return true
	}
	copies := 1
	if w.chance(w.network.double) {
		copies = 2
	}
	for range copies {
		held := max(0, w.network.clogged[from][to]-w.now)
		w.after(held+w.between(w.network.quickest, w.network.slowest), func() {
			switch l := w.members[to].life; {
			case l == nil:
			case l.member(from):
				arrive(l)
			}
		})
	}
	return true
}

// cutOff cuts a member off from all others.
func (w *world) cutOff(n int) {
	for other := range w.members {
		w.network.cut[n][other], w.network.cut[other][n] = other != n, other != n
	}
}

func (w *world) diskDelay() time.Duration {
	switch {
	case w.disks.slow && w.chance(0.01): // it hangs
		return w.between(time.Second, 3*time.Second)
	case w.disks.slow:
		return w.between(0, 300*time.Millisecond)
	}
	return w.between(0, 3*time.Millisecond)
}

type pair struct{ key, value []byte }

// SendSnapshot has the state as it is on the disk now go to the peer, and raft hear
// how it ended.
func (d driver) SendSnapshot(m *raftpb.Message) {
	l := d.life
	reported := false
	report := func(ok bool) {
		l.event(func(c *core.Core) {
			if !reported {
				reported = true
				c.SnapshotSent(m.GetTo(), ok)
			}
		})
	}
	l.at(time.Second, func() { report(false) }) // the connection would break
	view, err := l.log.View()
	if err != nil {
		l.w.fail("member %d: a view: %v", l.n, err)
	}
	body, err := proto.Marshal(core.Snapshot(m, view))
	if err != nil {
		l.w.fail("encoding a snapshot: %v", err)
	}
	var state []pair
	err = view.Each(func(key, value []byte) error {
		state = append(state, pair{append([]byte{}, key...), append([]byte{}, value...)})
		return nil
	})
	if err != nil || view.Close() != nil {
		l.w.fail("member %d: reading a view: %v", l.n, err)
	}
	digest := view.Digest
	l.w.say("%d sends %d a snapshot of %d", l.n, m.GetTo()-1, view.Index)
	l.w.carry(l.n, int(m.GetTo()-1), func(to *life) {
		to.happen(func() {
			to.takeSnapshot(l, body, digest, state, func(err error) {
				l.w.carry(to.n, l.n, func(back *life) {
					if back == l {
						report(err == nil)
					}
				})
			})
		})
	})
}

// takeSnapshot is Member.Snapshot.
func (l *life) takeSnapshot(from *life, body []byte, digest uint64, state []pair, done func(error)) {
	if l.staging {
		done(core.ErrInadmissible)
		return
	}
	stage, err := l.log.Stage()
	if err != nil {
		l.w.fail("member %d: staging: %v", l.n, err)
	}
	for i, p := range state {
		if i == len(state)/2 && l.doomed(doomStaging, "while staging") {
			return
		}
		if err := stage.Put(p.key, p.value); err != nil {
			l.w.fail("member %d: staging: %v", l.n, err)
		}
	}
	generation, err := stage.Finish()
	if err != nil {
		l.w.fail("member %d: staging: %v", l.n, err)
	}
	message := new(raftpb.Message)
	if err := proto.Unmarshal(body, message); err != nil {
		l.w.fail("decoding a snapshot: %v", err)
	}
	l.staging = true
	l.event(func(c *core.Core) {
		c.ReceiveSnapshot(from.id(), message, core.Staged{Generation: generation, Digest: digest, Done: func(err error) {
			l.staging = false
			l.w.say("%d: the snapshot: %v", l.n, err)
			done(err)
		}})
	})
}
