package replica

import (
	"log/slog"
	"strings"
	"testing"
	"time"
)

// The lack of a leader is logged once, after the time of an election, and so is its end. A member that did not run
// itself has not missed one.
func TestLeaderLog_Watch(t *testing.T) {
	const patience = 2 * time.Second
	type step struct {
		at      time.Duration
		contact bool
		want    string // a part of the line; "": none
	}
	for name, steps := range map[string][]step{
		"election":    {{1, true, ""}, {2, false, ""}, {3, true, ""}},
		"outage":      {{1, true, ""}, {2, false, ""}, {3, false, ""}, {4, false, `level=WARN msg="no leader"`}, {5, false, ""}, {6, true, `msg="leader found" leader=0000000000000007 after=5s`}, {7, true, ""}},
		"start":       {{60, false, ""}, {61, false, ""}, {62, false, ""}, {63, false, "remedy="}},
		"paused":      {{1, true, ""}, {20, false, ""}, {21, false, ""}, {22, true, ""}},
		"paused amid": {{1, true, ""}, {2, false, ""}, {4, false, "WARN"}, {30, false, ""}, {31, true, "after=30s"}},
	} {
		t.Run(name, func(t *testing.T) {
			var l leaderLog
			for _, s := range steps {
				var out strings.Builder
				l.watch(slog.New(slog.NewTextHandler(&out, nil)), s.contact, 7, s.at*time.Second, patience)
				if got := out.String(); (got == "") != (s.want == "") || !strings.Contains(got, s.want) {
					t.Errorf("at %d: %q, want %q", s.at, got, s.want)
				}
			}
		})
	}
}
