package cluster

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave/cluster/roster"
	"github.com/conclave-go/conclave/storage"
)

// The loss of the quorum is logged once, and so is its return; before the quorum was
// first there, nothing is.
func TestQuorumLog(t *testing.T) {
	roster := func(quorum bool) *roster.Snapshot {
		s := &roster.Snapshot{Members: []roster.Member{{ID: 1, Voter: true, Liveness: roster.Alive}, {ID: 2, Voter: true}, {ID: 3, Voter: true}}}
		if quorum {
			s.Members[1].Liveness = roster.Alive
		}
		return s
	}
	var out strings.Builder
	logger := slog.New(slog.NewTextHandler(&out, nil))
	var q quorumLog
	for _, quorum := range []bool{false, false, true, true, false, false, true, false} {
		q.note(logger, roster(quorum))
	}
	if lost, back := strings.Count(out.String(), "quorum lost"), strings.Count(out.String(), "quorum regained"); lost != 2 || back != 1 {
		t.Errorf("lost %d times, regained %d times:\n%s", lost, back, out.String())
	}
}

// A group that loses its redundancy has a warning with the remedy, and a line when that is over. A member that starts
// waits for the gossip of the others, and not for ever.
func TestRedundancyLog(t *testing.T) {
	type step struct {
		after time.Duration
		now   int
		down  int
		want  string // a part of the line; "": none
	}
	for name, steps := range map[string][]step{
		"one voter":        {{0, 0, 0, "INFO"}, {time.Hour, 0, 0, ""}},
		"a voter fails":    {{0, 1, 0, "INFO"}, {0, 0, 1, "WARN"}, {0, 0, 1, ""}, {0, -1, 2, "no quorum"}, {0, 0, 1, "next failure"}, {0, 1, 0, "INFO"}},
		"one of five":      {{0, 2, 0, "INFO"}, {0, 1, 1, "INFO"}},
		"a voter removed":  {{0, 1, 0, "INFO"}, {0, 0, 0, "WARN"}},
		"start":            {{0, -1, 2, ""}, {0, 0, 1, ""}, {0, 1, 0, "INFO"}},
		"start, one down":  {{0, -1, 2, ""}, {settleTime - 1, 0, 1, ""}, {1, 0, 1, "WARN"}},
		"start, no quorum": {{0, -1, 2, ""}, {settleTime, -1, 2, "WARN"}},
	} {
		t.Run(name, func(t *testing.T) {
			var l redundancyLog
			now := time.Now()
			for i, s := range steps {
				var out strings.Builder
				now = now.Add(s.after)
				l.note(slog.New(slog.NewTextHandler(&out, nil)), s.now, []uint64{5, 6}[:s.down], now)
				got := out.String()
				if (got == "") != (s.want == "") || !strings.Contains(got, s.want) || strings.Contains(got, "WARN") != strings.Contains(got, "remedy=") ||
					strings.Contains(got, "down=") != (got != "" && s.down > 0) {
					t.Errorf("step %d: %q, want %q", i, got, s.want)
				}
			}
		})
	}
}

func TestLogLiveness(t *testing.T) {
	var out strings.Builder
	to := slog.New(slog.NewTextHandler(&out, nil))
	logLiveness(to, 5, false)
	logLiveness(to, 5, true)
	dead, alive, _ := strings.Cut(out.String(), "\n")
	if !strings.Contains(dead, "level=WARN") || !strings.Contains(dead, "remedy=") || !strings.Contains(alive, "level=INFO") || strings.Contains(alive, "remedy=") {
		t.Error(out.String())
	}
}

// Flushes and compactions take space and free it again: a disk near the limit has one line, not one at each look.
func TestLogSpace_DoesNotFlap(t *testing.T) {
	var out strings.Builder
	log := slog.New(slog.NewTextHandler(&out, nil))
	const mib = 1 << 20
	short := false
	for i := range uint64(100) {
		short = logSpace(log, "d", short, storage.Space{Known: true, Free: (500 - i%2*16) * mib, Needed: (490 + i%2*16) * mib})
	}
	if short = logSpace(log, "d", short, storage.Space{Known: true, Free: 700 * mib, Needed: 490 * mib}); short {
		t.Error("700 MiB are enough")
	}
	if n := strings.Count(out.String(), "\n"); n != 2 {
		t.Errorf("%d lines, want a warning and its end:\n%s", n, &out)
	}
}
