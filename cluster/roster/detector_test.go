package roster

import (
	"testing"
	"time"

	"github.com/conclave-go/conclave/internal/fact"
)

func inRoster(m Member) *Snapshot { return &Snapshot{Members: []Member{m}} }

// The reports of the leader, by the liveness in its roster and the liveness recorded by
// the machine, of a member whose third process is registered.
func TestDetector_Reports(t *testing.T) {
	up := func(boot uint64) Member { return Member{ID: 7, boot: boot, Liveness: Alive} }
	down := func(boot uint64) Member { return Member{ID: 7, boot: boot, Liveness: dead} }
	none := Member{ID: 7}
	report := func(boot uint64, alive bool) *fact.LivenessReport {
		return &fact.LivenessReport{Member: 7, Boot: boot, Alive: alive}
	}
	for _, test := range []struct {
		name   string
		member Member
		silent bool          // as the group holds it
		after  time.Duration // since the first judgment
		want   *fact.LivenessReport
		again  time.Duration
	}{
		{"alive, as held", up(3), false, 0, nil, 0},
		{"alive again", up(3), true, 0, report(3, true), 0},
		{"a process alive that has not registered", up(4), true, 0, report(4, true), 0},
		{"an earlier process alive, none silent", up(2), false, time.Hour, nil, 0},
		{"an earlier process alive, the last one silent", up(2), true, 0, nil, 0},
		{"dead", down(3), false, 0, report(3, false), DetectionTimeout},
		{"dead, as held", down(3), true, 0, nil, DetectionTimeout},
		{"a process dead that never registered", down(4), false, 0, report(4, false), DetectionTimeout},
		{"an earlier process dead", down(2), false, 0, nil, DetectionTimeout},
		{"an earlier process dead, the last one never seen", down(2), false, DetectionTimeout, report(3, false), DetectionTimeout},
		{"not seen yet", none, false, DetectionTimeout - time.Second, nil, time.Second},
		{"never seen", none, false, DetectionTimeout, report(3, false), DetectionTimeout},
		{"never seen, as held", none, true, DetectionTimeout, nil, DetectionTimeout},
		{"not a member any more", Member{ID: 8, boot: 3, Liveness: dead}, false, time.Hour, nil, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			began := time.Now()
			held := []fact.MemberLiveness{{Member: 7, Boot: 3, Silent: test.silent}}
			_, _, d := Detector{}.Evaluate(held, inRoster(Member{ID: 7}), began)
			due, again, _ := d.Evaluate(held, inRoster(test.member), began.Add(test.after))
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
	none := inRoster(Member{ID: 7})
	third, fourth := []fact.MemberLiveness{{Member: 7, Boot: 3}}, []fact.MemberLiveness{{Member: 7, Boot: 4}}
	_, _, d := Detector{}.Evaluate(third, none, now)
	now = now.Add(DetectionTimeout - time.Second)
	due, again, d := d.Evaluate(fourth, none, now)
	if len(due) > 0 || again != DetectionTimeout {
		t.Fatal(due, again)
	}
	now = now.Add(DetectionTimeout)
	if due, _, _ = d.Evaluate(fourth, none, now); len(due) != 1 || due[0].Boot != 4 {
		t.Fatal(due)
	}
}

// A leader reports no death while it is isolated, and until its gossip has had time to
// rejoin.
func TestDetector_DistrustAfterIsolation(t *testing.T) {
	began := time.Now()
	const election = time.Second
	var d Detector
	for _, step := range []struct {
		name      string
		quorum    bool
		confirmed time.Duration
		at, want  time.Duration
	}{
		{"a quorum is alive", true, 0, 0, 0},
		{"most seem dead", false, 0, time.Second, DetectionTimeout},
		{"still", false, 0, time.Hour, DetectionTimeout},
		{"they are back", true, 0, time.Hour + time.Second, DetectionTimeout},
		{"a quorum is alive since", true, 0, time.Hour + 11*time.Second, DetectionTimeout - 10*time.Second},
		{"and for long enough", true, 0, time.Hour + time.Second + DetectionTimeout, 0},
		{"a quorum was slow to confirm", true, election, 2 * time.Hour, DetectionTimeout},
		{"and is quick again", true, election - 1, 2*time.Hour + DetectionTimeout, 0},
	} {
		now := began.Add(step.at)
		d = d.Observe(step.quorum, step.confirmed, election, now)
		if got := d.holdOff(now); got != step.want {
			t.Errorf("%s: holds off for %v, want %v", step.name, got, step.want)
		}
		due, again, _ := d.Evaluate([]fact.MemberLiveness{{Member: 7, Boot: 3}}, inRoster(Member{ID: 7, boot: 3, Liveness: dead}), now)
		if believed := len(due) == 1; believed != (step.want == 0) || !believed && again != step.want {
			t.Errorf("%s: reports %+v, judges again after %v", step.name, due, again)
		}
		due, _, _ = d.Evaluate([]fact.MemberLiveness{{Member: 7, Boot: 3, Silent: true}}, inRoster(Member{ID: 7, boot: 3, Liveness: Alive}), now)
		if len(due) != 1 {
			t.Errorf("%s: a member that is alive is not reported", step.name)
		}
	}
}

// A process that starts has no quorum in gossip at first. It trusts gossip from its first
// quorum on, and gives a process that gossip has not shown its time from then.
func TestDetector_TrustFromFirstQuorum(t *testing.T) {
	began := time.Now()
	never := []fact.MemberLiveness{{Member: 7, Boot: 3}}
	d := Detector{}.Observe(false, 0, time.Second, began)
	due, _, d := d.Evaluate(never, inRoster(Member{ID: 7}), began)
	if len(due) > 0 || d.holdOff(began) != DetectionTimeout {
		t.Fatalf("before the first quorum: %+v, holds off for %v", due, d.holdOff(began))
	}
	joined := began.Add(DetectionTimeout)
	d = d.Observe(true, 0, time.Second, joined)
	if d.holdOff(joined) != 0 {
		t.Errorf("after the first quorum it holds off for %v", d.holdOff(joined))
	}
	for _, step := range []struct {
		at   time.Duration
		want int
	}{{0, 0}, {DetectionTimeout - time.Second, 0}, {DetectionTimeout, 1}} {
		due, _, d = d.Evaluate(never, inRoster(Member{ID: 7}), joined.Add(step.at))
		if len(due) != step.want {
			t.Errorf("%v after the first quorum: %+v", step.at, due)
		}
	}
	if due, _, _ = d.Evaluate(never, inRoster(Member{ID: 7, boot: 3, Liveness: dead}), joined); len(due) != 1 {
		t.Errorf("a death after the first quorum: %+v", due)
	}
}
