package process

import (
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// processGroup is a group whose members are processes.
type processGroup struct {
	t       testing.TB
	configs []memberConfig
	members []*process
}

func processesOf(t testing.TB, n int, ttl time.Duration) *processGroup {
	t.Helper()
	return processesWith(t, n, memberConfig{TTL: ttl})
}

func processesWith(t testing.TB, n int, config memberConfig) *processGroup {
	t.Helper()
	g := &processGroup{t: t, configs: make([]memberConfig, n), members: make([]*process, n)}
	var join []string
	for i := range n {
		g.members[i] = launch(t, "127.0.0.1:0")
		if n > 1 {
			join = append(join, g.members[i].addr)
		}
	}
	var wg sync.WaitGroup
	for i, p := range g.members {
		g.configs[i] = config
		g.configs[i].Dir, g.configs[i].Join, g.configs[i].Expect = t.TempDir(), join, n
		wg.Go(func() { g.open(i, p) })
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return g
}

func (g *processGroup) open(i int, p *process) {
	if _, err := p.do(order{Do: "open", Config: g.configs[i]}); err != nil {
		g.t.Errorf("process %d: %v", i, err)
	}
}

// restart starts a killed member again, in the same directory.
func (g *processGroup) restart(i int) {
	g.t.Helper()
	p := launch(g.t, g.members[i].addr)
	g.open(i, p)
	g.members[i] = p
}

// leader waits until a majority follows a member that runs.
func (g *processGroup) leader() int {
	g.t.Helper()
	for ctx := grouptest.Bounded(g.t); ctx.Err() == nil; {
		votes := make(map[conclave.MemberID]int)
		ids := make([]conclave.MemberID, len(g.members))
		for i, p := range g.members {
			if p.stopped {
				continue
			}
			if r, err := p.do(order{Do: "status"}); err == nil {
				ids[i] = r.Member
				votes[r.Leader]++
			}
		}
		for i, id := range ids {
			if id != 0 && votes[id] > len(g.members)/2 {
				return i
			}
		}
		<-time.After(5 * time.Millisecond) // no report signals a change of leader
	}
	g.t.Fatal("no leader of a majority")
	return 0
}
