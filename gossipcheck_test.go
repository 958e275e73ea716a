package conclave

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// What the leader reports, for each thing that gossip may say and the group may
// hold of a member whose third start is the last that the group knows.
func TestGossipReports(t *testing.T) {
	alive := func(boot uint64) cluster.Presence { return cluster.Presence{Member: 7, Boot: boot, Alive: true} }
	dead := func(boot uint64) cluster.Presence { return cluster.Presence{Member: 7, Boot: boot, Dead: true} }
	unknown := cluster.Presence{Member: 7}
	for _, test := range []struct {
		name     string
		presence cluster.Presence
		silent   bool
		after    time.Duration // since the leader first looked
		want     *wire.ReportGossip
		again    time.Duration
	}{
		{"alive, as is held", alive(3), false, 0, nil, 0},
		{"alive again", alive(3), true, 0, &wire.ReportGossip{Member: 7, Boot: 3, Alive: true}, 0},
		{"a start alive that has not registered", alive(4), true, 0, &wire.ReportGossip{Member: 7, Boot: 4, Alive: true}, 0},
		{"only a former start is alive, and none is missed", alive(2), false, time.Hour, nil, 0},
		{"a former start says nothing of the last", alive(2), true, 0, nil, 0},
		{"dead", dead(3), false, 0, &wire.ReportGossip{Member: 7, Boot: 3}, gossipPatience},
		{"dead, as is held", dead(3), true, 0, nil, gossipPatience},
		{"a start dead that never registered", dead(4), false, 0, &wire.ReportGossip{Member: 7, Boot: 4}, gossipPatience},
		{"a former start is dead", dead(2), false, 0, nil, gossipPatience},
		{"a former start is dead, and the last one never shows", dead(2), false, gossipPatience, &wire.ReportGossip{Member: 7, Boot: 3}, gossipPatience},
		{"not seen yet", unknown, false, gossipPatience - time.Second, nil, time.Second},
		{"never seen", unknown, false, gossipPatience, &wire.ReportGossip{Member: 7, Boot: 3}, gossipPatience},
		{"never seen, as is held", unknown, true, gossipPatience, nil, gossipPatience},
		{"no member any more", cluster.Presence{Member: 8, Boot: 3, Dead: true}, false, time.Hour, nil, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			g, began := new(gossipCheck), time.Now()
			held := []machine.GossipView{{Member: 7, Boot: 3, Silent: test.silent}}
			g.judge(held, []cluster.Presence{{Member: 7}}, began)
			reports, again := g.judge(held, []cluster.Presence{test.presence}, began.Add(test.after))
			if test.want == nil && len(reports) > 0 || test.want != nil && (len(reports) != 1 || !proto.Equal(reports[0], test.want)) {
				t.Errorf("reports %v, not %v", reports, test.want)
			}
			if again != test.again {
				t.Errorf("looks again after %v, not %v", again, test.again)
			}
		})
	}
}

// Each start that gossip does not show gets its own time.
func TestGossipPatienceIsPerStart(t *testing.T) {
	g, now := new(gossipCheck), time.Now()
	unseen := []cluster.Presence{{Member: 7}}
	g.judge([]machine.GossipView{{Member: 7, Boot: 3}}, unseen, now)
	now = now.Add(gossipPatience - time.Second)
	if reports, again := g.judge([]machine.GossipView{{Member: 7, Boot: 4}}, unseen, now); len(reports) > 0 || again != gossipPatience {
		t.Fatal(reports, again)
	}
	now = now.Add(gossipPatience)
	if reports, _ := g.judge([]machine.GossipView{{Member: 7, Boot: 4}}, unseen, now); len(reports) != 1 || reports[0].GetBoot() != 4 {
		t.Fatal(reports)
	}
}

// Deaths that gossip shows are not believed by a leader that is cut off, nor soon
// after: its gossip needs time to find the others again.
func TestGossipIsNotBelievedAfterACut(t *testing.T) {
	began := time.Now()
	at := func(d time.Duration) time.Time { return began.Add(d) }
	g := newGossipCheck(alone(t))
	slow := g.node.cfg.ElectionTimeout
	for _, step := range []struct {
		name      string
		majority  bool
		confirmed time.Duration
		at, want  time.Duration
	}{
		{"all is well", true, 0, 0, 0},
		{"most seem dead", false, 0, time.Second, gossipPatience},
		{"still", false, 0, time.Hour, gossipPatience},
		{"they are back", true, 0, time.Hour + time.Second, gossipPatience},
		{"all is well meanwhile", true, 0, time.Hour + 11*time.Second, gossipPatience - 10*time.Second},
		{"and for long enough", true, 0, time.Hour + time.Second + gossipPatience, 0},
		{"a majority was slow to answer", true, slow, 2 * time.Hour, gossipPatience},
		{"and quick again", true, slow - 1, 2*time.Hour + gossipPatience, 0},
	} {
		g.noteContact(step.majority, step.confirmed, at(step.at))
		if got := max(0, g.untrusted(at(step.at))); got != step.want {
			t.Errorf("%s: untrusted for %v, want %v", step.name, got, step.want)
		}
	}
}
