package client

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/conclave-go/conclave/internal/wire"
)

// Run is a handle to one run of a job. It is a Lock whose commands name the job: a hold in the space of jobs, which the
// command that releases it gives a result. It is acquired once.
type Run struct {
	Lock
	terms jobTerms
}

// jobTerms is what the commands of a run have besides.
type jobTerms struct {
	job, key    string
	attempts    uint32
	keep, every time.Duration

	// Guarded by mu of the handle. Until a caller reports a result, the run does not count: whatever
	// releases the grant then, no caller has received it.
	result wire.RunResult
	detail string
}

// RunConfig describes a run. With Every it has no key.
type RunConfig struct {
	Lease       *Lease // nil: the client's own, which is opened when it is needed
	Name        string // for people
	Job, Key    string
	Attempts    uint32 // the key is not run after so many; 0: without bound
	Keep, Every time.Duration
}

// Init makes r a new handle. r must be a zero Run.
func (r *Run) Init(c *Client, cfg RunConfig) {
	r.terms = jobTerms{
		job: cfg.Job, key: cfg.Key, attempts: cfg.Attempts, keep: cfg.Keep, every: cfg.Every,
		result: wire.RunResult_NOT_STARTED,
	}
	r.Lock.Init(c, LockConfig{Lease: cfg.Lease, Space: wire.Space_JOB, Name: cfg.Name})
	r.Lock.terms = &r.terms
}

// Acquire waits until the run begins, as [Lock.Acquire] does, or the group refuses it since the key is closed.
func (r *Run) Acquire(ctx context.Context, tr *Trace) (fence uint64, err error) {
	if r.client.group.Level() < wire.LevelJobs {
		return 0, belowLevel("knows jobs")
	}
	return r.Lock.Acquire(ctx, true, nil, tr)
}

// End ends the run with a result, DONE or FAILED, and a text for people, of which the first bytes are kept. It blocks as
// [Lock.Release] does.
func (r *Run) End(ctx context.Context, result wire.RunResult, detail string, tr *Trace) error {
	r.mu.Lock()
	r.terms.result, r.terms.detail = result, clipped(detail, wire.MaxRunDetail)
	r.mu.Unlock()
	return r.Release(ctx, tr)
}

// DeleteJob deletes a job. It blocks until the group has decided, and is refused as LOCKED while the job is in use.
func DeleteJob(ctx context.Context, c *Client, job string) error {
	if c.group.Level() < wire.LevelDeleteJob {
		return belowLevel("deletes jobs")
	}
	_, err := c.Exec(ctx, &wire.Command{Op: &wire.Command_DeleteJob{DeleteJob: &wire.DeleteJob{Job: job}}})
	return err
}

// clipped returns the first bytes of a text as UTF-8, without a part of a rune.
func clipped(text string, limit int) string {
	// A byte that is none of a rune grows to three.
	text = strings.ToValidUTF8(text[:min(len(text), limit+utf8.UTFMax)], "\uFFFD")
	if len(text) <= limit {
		return text
	}
	for !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

func (l *Lock) runJobCommand(lease *Lease) *wire.Command {
	t := l.terms
	return &wire.Command{Op: &wire.Command_RunJob{RunJob: &wire.RunJob{
		Job: t.job, Key: t.key, Session: lease.id[:], Handle: l.number,
		Attempts: t.attempts, Keep: int64(t.keep), Every: int64(t.every),
	}}}
}

func (l *Lock) endRunCommand(lease *Lease, fence uint64) *wire.Command {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.terms
	return &wire.Command{Op: &wire.Command_EndRun{EndRun: &wire.EndRun{
		Job: t.job, Key: t.key, Session: lease.id[:], Handle: l.number, Fence: fence, Result: t.result, Detail: t.detail,
	}}}
}

// job implements target.
func (l *Lock) job() string {
	if l.terms == nil {
		return ""
	}
	return l.terms.job + "\x00" + l.terms.key
}
