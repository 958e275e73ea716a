package grouptest

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// Access is what a Node and a Client have in common.
type Access interface {
	FencedLock(name string, opts ...conclave.LockOption) *conclave.FencedLock
	RWLock(name string, opts ...conclave.LockOption) *conclave.RWLock
	LockSet(names []string, opts ...conclave.LockOption) *conclave.LockSet
	Semaphore(name string, limit int) *conclave.Semaphore
	Election(name string) *conclave.Election
	KV() *conclave.KV
	Job(name string, opts ...conclave.JobOption) *conclave.Job
	Jobs(ctx context.Context, prefix string, opts ...conclave.ListOption[string]) iter.Seq2[conclave.JobInfo, error]
	Shards(name string, count int, opts ...conclave.ShardsOption) *conclave.Shards
	ShardSets(ctx context.Context, prefix string, opts ...conclave.ListOption[string]) iter.Seq2[conclave.ShardsInfo, error]
	NewSession(ctx context.Context, cfg *conclave.SessionConfig) (*conclave.Session, error)
	AttachSession(ctx context.Context, id conclave.SessionID) (*conclave.Session, error)
	CloseSession(ctx context.Context, id conclave.SessionID) error
	RenewSession(ctx context.Context, id conclave.SessionID) error
	SessionInfo(ctx context.Context, id conclave.SessionID, opts ...conclave.ReadOption) (conclave.SessionInfo, error)
	CheckSequencer(ctx context.Context, s conclave.Sequencer) error
	Sessions(ctx context.Context, opts ...conclave.ListOption[conclave.SessionInfo]) iter.Seq2[conclave.SessionInfo, error]
	Locks(ctx context.Context, prefix string, opts ...conclave.ListOption[string]) iter.Seq2[conclave.LockInfo, error]
	Semaphores(ctx context.Context, prefix string, opts ...conclave.ListOption[string]) iter.Seq2[conclave.SemaphoreInfo, error]
	Elections(ctx context.Context, prefix string, opts ...conclave.ListOption[string]) iter.Seq2[conclave.Leader, error]
	Checks(ctx context.Context, opts ...conclave.ListOption[conclave.CheckInfo]) iter.Seq2[conclave.CheckInfo, error]
	GroupConfig(ctx context.Context) (conclave.GroupConfig, error)
	SetGroupConfig(ctx context.Context, c conclave.GroupConfig) error
	Explain(ctx context.Context, lock string) (conclave.Explanation, error)
	WaitCycles(ctx context.Context) ([]conclave.WaitCycle, error)
	Close(ctx context.Context) error
	Done() <-chan struct{}
	Err() error
}

// ID is the ID of the member or of the client.
func ID(a Access) conclave.MemberID {
	if c, ok := a.(*conclave.Client); ok {
		return c.ID()
	}
	return a.(*conclave.Node).Status().ID
}

// BothWays runs a test with a node of a group of one, and with a client of such a node.
func BothWays(t *testing.T, test func(t *testing.T, a Access)) {
	t.Run("node", func(t *testing.T) { test(t, Alone(t)) })
	t.Run("client", func(t *testing.T) {
		// The group learns of clients after 10 heartbeats.
		n, err := conclave.Open(Bounded(t), &conclave.Config{HeartbeatInterval: 10 * time.Millisecond})
		Must(t, err)
		t.Cleanup(func() { Kill(n) })
		test(t, Dial(t, &conclave.ClientConfig{}, n))
	})
}

// Dial opens a client of these nodes, which is closed when the test ends.
func Dial(t testing.TB, cfg *conclave.ClientConfig, nodes ...*conclave.Node) *conclave.Client {
	t.Helper()
	for _, n := range nodes {
		cfg.Addresses = append(cfg.Addresses, n.Addr())
	}
	cfg.Logger = logger(t, -1)
	c, err := conclave.Dial(Bounded(t), cfg)
	Must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Log("client not closed gracefully:", err)
		}
	})
	return c
}
