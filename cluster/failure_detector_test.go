package cluster

import (
	"testing"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

func inRoster(m rosterMember) *rosterSnapshot { return &rosterSnapshot{members: []rosterMember{m}} }

// The reports of the leader, by the liveness in its roster and the liveness recorded by
// the machine, of a member whose third process is registered.
func TestDetector_Reports(t *testing.T) {
	up := func(boot uint64) rosterMember { return rosterMember{id: 7, boot: boot, liveness: alive} }
	down := func(boot uint64) rosterMember { return rosterMember{id: 7, boot: boot, liveness: dead} }
	none := rosterMember{id: 7}
	report := func(boot uint64, alive bool) *wire.LivenessReport {
		return &wire.LivenessReport{Member: 7, Boot: boot, Alive: alive}
	}
	for _, test := range []struct {
		name   string
		member rosterMember
		silent bool          // as the group holds it
		after  time.Duration // since the first judgment
		want   *wire.LivenessReport
		again  time.Duration
	}{
		{"alive, as held", up(3), false, 0, nil, 0},
		{"alive again", up(3), true, 0, report(3, true), 0},
		{"a process alive that has not registered", up(4), true, 0, report(4, true), 0},
		{"an earlier process alive, none silent", up(2), false, time.Hour, nil, 0},
		{"an earlier process alive, the last one silent", up(2), true, 0, nil, 0},
		{"dead", down(3), false, 0, report(3, false), detectionTimeout},
		{"dead, as held", down(3), true, 0, nil, detectionTimeout},
		{"a process dead that never registered", down(4), false, 0, report(4, false), detectionTimeout},
		{"an earlier process dead", down(2), false, 0, nil, detectionTimeout},
		{"an earlier process dead, the last one never seen", down(2), false, detectionTimeout, report(3, false), detectionTimeout},
		{"not seen yet", none, false, detectionTimeout - time.Second, nil, time.Second},
		{"never seen", none, false, detectionTimeout, report(3, false), detectionTimeout},
		{"never seen, as held", none, true, detectionTimeout, nil, detectionTimeout},
		{"not a member any more", rosterMember{id: 8, boot: 3, liveness: dead}, false, time.Hour, nil, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			began := time.Now()
			held := []wire.MemberLiveness{{Member: 7, Boot: 3, Silent: test.silent}}
			_, _, d := detector{}.evaluate(held, inRoster(rosterMember{id: 7}), began)
			due, again, _ := d.evaluate(held, inRoster(test.member), began.Add(test.after))
			if test.want == nil && len(due) > 0 || test.want != nil && (len(due) != 1 || due[0] != *test.want) {
				t.Errorf("reports %+v, want %+v", due, test.want)
			}
			if again != test.again {
				t.Errorf("judges again after %v, want %v", again, test.again)
			}
		})
	}
}

// Each process that gossip does not show gets its own time.
func TestDetector_PatiencePerProcess(t *testing.T) {
	now := time.Now()
	none := inRoster(rosterMember{id: 7})
	third, fourth := []wire.MemberLiveness{{Member: 7, Boot: 3}}, []wire.MemberLiveness{{Member: 7, Boot: 4}}
	_, _, d := detector{}.evaluate(third, none, now)
	now = now.Add(detectionTimeout - time.Second)
	due, again, d := d.evaluate(fourth, none, now)
	if len(due) > 0 || again != detectionTimeout {
		t.Fatal(due, again)
	}
	now = now.Add(detectionTimeout)
	if due, _, _ = d.evaluate(fourth, none, now); len(due) != 1 || due[0].Boot != 4 {
		t.Fatal(due)
	}
}

// A leader reports no death while it is isolated, and until its gossip has had time to
// rejoin.
func TestDetector_DistrustAfterIsolation(t *testing.T) {
	began := time.Now()
	const election = time.Second
	var d detector
	for _, step := range []struct {
		name      string
		quorum    bool
		confirmed time.Duration
		at, want  time.Duration
	}{
		{"a quorum is alive", true, 0, 0, 0},
		{"most seem dead", false, 0, time.Second, detectionTimeout},
		{"still", false, 0, time.Hour, detectionTimeout},
		{"they are back", true, 0, time.Hour + time.Second, detectionTimeout},
		{"a quorum is alive since", true, 0, time.Hour + 11*time.Second, detectionTimeout - 10*time.Second},
		{"and for long enough", true, 0, time.Hour + time.Second + detectionTimeout, 0},
		{"a quorum was slow to confirm", true, election, 2 * time.Hour, detectionTimeout},
		{"and is quick again", true, election - 1, 2*time.Hour + detectionTimeout, 0},
	} {
		now := began.Add(step.at)
		d = d.observe(step.quorum, step.confirmed, election, now)
		if got := d.holdOff(now); got != step.want {
			t.Errorf("%s: holds off for %v, want %v", step.name, got, step.want)
		}
		due, again, _ := d.evaluate([]wire.MemberLiveness{{Member: 7, Boot: 3}}, inRoster(rosterMember{id: 7, boot: 3, liveness: dead}), now)
		if believed := len(due) == 1; believed != (step.want == 0) || !believed && again != step.want {
			t.Errorf("%s: reports %+v, judges again after %v", step.name, due, again)
		}
		due, _, _ = d.evaluate([]wire.MemberLiveness{{Member: 7, Boot: 3, Silent: true}}, inRoster(rosterMember{id: 7, boot: 3, liveness: alive}), now)
		if len(due) != 1 {
			t.Errorf("%s: a member that is alive is not reported", step.name)
		}
	}
}

// A process that starts has no quorum in gossip at first. It trusts gossip from its first
// quorum on, and gives a process that gossip has not shown its time from then.
func TestDetector_TrustFromFirstQuorum(t *testing.T) {
	began := time.Now()
	never := []wire.MemberLiveness{{Member: 7, Boot: 3}}
	d := detector{}.observe(false, 0, time.Second, began)
	due, _, d := d.evaluate(never, inRoster(rosterMember{id: 7}), began)
	if len(due) > 0 || d.holdOff(began) != detectionTimeout {
		t.Fatalf("before the first quorum: %+v, holds off for %v", due, d.holdOff(began))
	}
	joined := began.Add(detectionTimeout)
	d = d.observe(true, 0, time.Second, joined)
	if d.holdOff(joined) != 0 {
		t.Errorf("after the first quorum it holds off for %v", d.holdOff(joined))
	}
	for _, step := range []struct {
		at   time.Duration
		want int
	}{{0, 0}, {detectionTimeout - time.Second, 0}, {detectionTimeout, 1}} {
		due, _, d = d.evaluate(never, inRoster(rosterMember{id: 7}), joined.Add(step.at))
		if len(due) != step.want {
			t.Errorf("%v after the first quorum: %+v", step.at, due)
		}
	}
	if due, _, _ = d.evaluate(never, inRoster(rosterMember{id: 7, boot: 3, liveness: dead}), joined); len(due) != 1 {
		t.Errorf("a death after the first quorum: %+v", due)
	}
}

// No process is reported dead while there is a live connection with its member, whatever
// gossip says.
func TestDetector_ConnectedIsNotReportedDead(t *testing.T) {
	connected := func(member uint64) bool { return member == 7 }
	due := withoutConnected([]wire.LivenessReport{
		{Member: 7, Boot: 3}, {Member: 8, Boot: 1}, {Member: 7, Boot: 3, Alive: true},
	}, connected)
	if len(due) != 2 || due[0].Member != 8 || !due[1].Alive {
		t.Errorf("reports %+v", due)
	}
}
