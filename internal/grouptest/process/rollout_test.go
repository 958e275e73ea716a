package process

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// Planned restarts and replacements under load. The TTL is longer than the tests, so
// only a graceful shutdown releases the locks of a process that ends.

const rolloutTTL = time.Minute

// stopGracefully has the node of a process close or leave, and ends the process.
func (p *process) stopGracefully(how string) {
	p.t.Helper()
	p.mu.Lock()
	p.closing = true
	p.mu.Unlock()
	if _, err := p.do(order{Do: how}); err != nil {
		p.t.Errorf("%s: %v", how, err)
	}
	p.kill()
}

func (p *process) isClosing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closing
}

// rollout is a group under load whose processes are replaced.
type rollout struct {
	*processGroup
	auditor *auditor
	ctx     context.Context
	load    context.Context
	workers sync.WaitGroup
}

// underLoad starts three processes that lock all the time until the end of roll.
func underLoad(t *testing.T, roll func(r *rollout)) {
	t.Helper()
	ctx := grouptest.Bounded(t)
	load, end := context.WithCancel(ctx)
	r := &rollout{processGroup: processesOf(t, 3, rolloutTTL), auditor: newAuditor(t), ctx: ctx, load: load}
	defer r.workers.Wait()
	defer end()
	for _, p := range r.members {
		r.work(p)
	}
	roll(r)
	r.auditor.awaitProgress(ctx, r.members)
	r.auditor.mu.Lock()
	defer r.auditor.mu.Unlock()
	t.Logf("%d grants, longest time without one %v", len(r.auditor.seen), r.auditor.gap.Round(time.Millisecond))
	if r.auditor.refused > 0 {
		t.Errorf("%d writes with an old fence", r.auditor.refused)
	}
}

func (r *rollout) work(p *process) {
	for _, lock := range []string{"a", "b", lingering} {
		r.workers.Go(func() { r.auditor.work(r.load, p, lock) })
	}
}

// step replaces process i while another one holds a lock, which it must keep.
func (r *rollout) step(i int, replace func()) {
	r.t.Helper()
	r.auditor.awaitProgress(r.ctx, r.members)
	survivor := r.members[(i+1)%3]
	kept := &hold{holder: survivor, lock: "kept", fence: survivor.must("lock", "kept")}
	replace()
	r.work(r.members[i])
	if f := survivor.must("fence", "kept"); f != kept.fence {
		r.t.Errorf("fence %v has become %v", kept.fence, f)
	}
	r.wantHeld(kept)
}

// Each process is closed and restarted with its directory, as by a StatefulSet.
func TestRollout_RestartEachMember(t *testing.T) {
	t.Parallel()
	underLoad(t, func(r *rollout) {
		for i := range 3 {
			r.step(i, func() {
				r.members[i].stopGracefully("close")
				r.restart(i)
			})
		}
	})
}

// A process without a directory joins, then an old one leaves, as by a Deployment: two
// rounds through all members.
func TestRollout_ReplaceEachMember(t *testing.T) {
	t.Parallel()
	underLoad(t, func(r *rollout) {
		var gone []conclave.MemberID
		for i := range 6 {
			i %= 3
			r.step(i, func() {
				status, err := r.members[i].do(order{Do: "status"})
				mustSucceed(t, err)
				gone = append(gone, status.Member)
				old := r.members[i]
				r.members[i] = launch(t, "127.0.0.1:0")
				r.configs[i] = memberConfig{Join: []string{r.members[(i+1)%3].addr}, Expect: 3, TTL: rolloutTTL}
				r.open(i, r.members[i])
				old.stopGracefully("leave")
			})
		}
		for _, p := range r.members {
			report, err := p.do(order{Do: "alive"})
			mustSucceed(t, err)
			for _, id := range gone {
				if report.alive(uint64(id)) {
					t.Errorf("member %v has left and is listed", id)
				}
			}
		}
	})
}
