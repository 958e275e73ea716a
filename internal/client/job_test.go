package client

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/conclave-go/conclave/internal/wire"
)

func newRun(c *Client, cfg RunConfig) *Run {
	cfg.Name = "nightly 2026-11-25"
	r := new(Run)
	r.Init(c, cfg)
	return r
}

// Below the level a member would skip the command, so it is not submitted.
func TestRun_BelowLevel(t *testing.T) {
	c, g := newFake(t)
	raise(t, c, wire.LevelJobs-1)
	before := g.last()
	_, err := newRun(c, RunConfig{Job: "nightly", Key: "2026-11-25"}).Acquire(t.Context(), nil)
	if !isCode(err, wire.Code_LEVEL) || g.last() != before {
		t.Errorf("got %v, want LEVEL, and nothing submitted", err)
	}
}

func TestDeleteJob_BelowLevel(t *testing.T) {
	c, g := newFake(t)
	raise(t, c, wire.LevelDeleteJob-1)
	before := g.last()
	if err := DeleteJob(t.Context(), c, "nightly"); !isCode(err, wire.Code_LEVEL) || g.last() != before {
		t.Errorf("got %v, want LEVEL, and nothing submitted", err)
	}
}

func TestRun_Submitted(t *testing.T) {
	c, _ := newFake(t)
	raise(t, c, wire.LevelTrace)
	lease := mustOpen(t, c, fakeTTL)
	r := newRun(c, RunConfig{Lease: lease, Job: "nightly", Key: "k", Attempts: 3, Keep: 5, Every: 7})
	got := r.lockCommand(lease, nil, wanted{wait: true}).GetRunJob()
	if got.GetJob() != "nightly" || got.GetKey() != "k" || got.GetHandle() != r.number || wire.ID(got.GetSession()) != lease.id ||
		got.GetAttempts() != 3 || got.GetKeep() != 5 || got.GetEvery() != 7 {
		t.Errorf("%v", got)
	}
	end := c.traced(r.releaseCommand(lease, grant{fence: 9}), []byte("span"))
	if op := end.GetEndRun(); op.GetResult() != wire.RunResult_NOT_STARTED || op.GetDetail() != "" || op.GetFence() != 9 ||
		op.GetJob() != "nightly" || op.GetKey() != "k" || op.GetHandle() != r.number || string(op.GetTrace()) != "span" {
		t.Errorf("%v", op)
	}
	if !releases(end) {
		t.Error("a process that is refused as BUSY does not end its run later")
	}
	if name := r.job(); name != "nightly\x00k" {
		t.Errorf("%q in the space of jobs", name)
	}
	if name := newLock(c, lease, "x").job(); name != "" {
		t.Errorf("a lock is the job %q", name)
	}
}

// Only a result that a caller reports counts.
func TestRun_ResultIsReported(t *testing.T) {
	c, _ := newFake(t)
	lease := mustOpen(t, c, fakeTTL)
	r := newRun(c, RunConfig{Lease: lease, Job: "nightly", Key: "k"})
	wantKind(t, r.End(t.Context(), wire.RunResult_FAILED, strings.Repeat("é", 100), nil), NotHeld)
	got := r.releaseCommand(lease, grant{fence: 9}).GetEndRun()
	if got.GetResult() != wire.RunResult_FAILED || got.GetDetail() != strings.Repeat("é", 64) {
		t.Errorf("%v", got)
	}
}

func TestClipped(t *testing.T) {
	for _, c := range []struct {
		text, want string
	}{
		{"", ""},
		{"12345678", "12345678"},
		{"123456789", "12345678"},
		{"1234567é", "1234567"},
		{"123456é8", "123456é"},
		{"12345\U0001F512", "12345"},
		{"1\xff\xfe4", "1\uFFFD4"},
		{"123456\xff", "123456"}, // what replaces it has three bytes
		{"1234567\xe2\x82", "1234567"},
		{"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "\uFFFD"},
		{strings.Repeat("\xffa", 20), "\uFFFDa\uFFFDa"},
	} {
		got := clipped(c.text, 8)
		if got != c.want || !utf8.ValidString(got) {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}
