package replica

import (
	"testing"
	"time"
)

// Under load the applied index is never the one reported, but a recent one.
func TestLag_UnderLoad(t *testing.T) {
	t.Parallel()
	var l lag
	for i := range 1000 {
		now := time.Duration(i) * time.Millisecond
		l.reached(uint64(i), uint64(i)+5, now)
		if behind := now - l.since; behind > 6*time.Millisecond {
			t.Fatalf("behind for %v at %v", behind, now)
		}
	}
	l.reached(1500, 2500, 2*time.Second)
	l.reached(2499, 3000, 4*time.Second)
	if behind := 4*time.Second - l.since; behind != 2*time.Second {
		t.Errorf("behind for %v; want 2s", behind)
	}
}

// After an outage the member has caught up when it has applied what is reported next, or
// when the leader has reported nothing for an election timeout.
func TestLag_Regained(t *testing.T) {
	t.Parallel()
	const election = time.Second
	for name, c := range map[string]struct {
		proven       bool
		reports      uint64 // 3 is what was reported before
		applied      uint64
		after        time.Duration
		wantRegained bool
	}{
		"nothing reported yet":      {false, 3, 10, election / 2, true},
		"nothing reported for long": {false, 3, 10, election, false},
		"reported, behind":          {false, 4, 10, election / 2, true},
		"reported, behind for long": {false, 4, 19, 9 * election, true},
		"reported, caught up":       {false, 4, 20, election / 2, false},
		"leads, or is registered":   {true, 3, 10, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var l lag
			now := 10 * time.Second
			l.reached(10, 10, now)
			l.heard(true, false, 3, now, election)
			if l.regained != 0 {
				t.Fatal("an outage before any loss of contact")
			}
			l.heard(false, false, 3, now+election, election)
			if l.lost {
				t.Fatal("lost during an election")
			}
			now += 2 * election
			l.heard(false, false, 3, now, election)
			l.heard(true, c.proven, 3, now, election)
			reported := uint64(10)
			if c.reports > 3 {
				reported = 20
			}
			l.reached(c.applied, reported, now+c.after)
			l.heard(true, c.proven, c.reports, now+c.after, election)
			if (l.regained != 0) != c.wantRegained {
				t.Errorf("%+v", l)
			}
		})
	}
}
