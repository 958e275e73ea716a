package cluster

import (
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/replica"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// withGroups opens a directory that has the logs of groups, and what member 9 has acknowledged of each.
func withGroups(t *testing.T, acknowledged map[uint32]core.Position) *Groups {
	t.Helper()
	store, err := storage.Open(storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	log, err := raftlog.Open(store)
	if err != nil {
		t.Fatal(err)
	}
	cfg := groupsConfig{
		log: log, lifetime: t.Context(), logger: slog.New(slog.DiscardHandler),
		use: func(uint32) GroupUse {
			return GroupUse{Callbacks: replica.Callbacks{LeaderChanged: func(uint64, uint64) {}}}
		},
		replica: func() replica.Config { return replica.Config{Stopped: func() error { return ErrStopped }} },
	}
	for number, p := range acknowledged {
		other, err := log.OpenGroup(number)
		if err == nil {
			err = other.Bootstrap(&raftpb.ConfState{Voters: []uint64{1, 9}})
		}
		if err != nil {
			t.Fatal(err)
		}
		(&hosted{log: other}).SaveAcknowledged(9, p)
	}
	g := newGroups(cfg)
	if err := g.open(); err != nil {
		t.Fatal(err)
	}
	return g
}

// A member that has forgotten entries of one further group is refused, whatever it has of the others; also if its directory is older than
// the group, or has lost its log. One that has erased the log of a deleted group is admitted.
func TestGroups_AdmitRefusesForgotten(t *testing.T) {
	g := withGroups(t, map[uint32]core.Position{2: {Term: 3, Index: 70}, 5: {Term: 1, Index: 10}})
	at := func(group uint32, term, index uint64) *wire.GroupPosition {
		return &wire.GroupPosition{Group: group, Term: term, Index: index}
	}
	for _, test := range []struct {
		name    string
		durable transport.Durable
		admits  bool
	}{
		{"all that it has acknowledged", transport.Durable{Groups: []*wire.GroupPosition{at(2, 3, 70), at(5, 1, 10)}}, true},
		{"more, and another group", transport.Durable{Groups: []*wire.GroupPosition{at(2, 4, 90), at(3, 1, 1), at(5, 1, 10)}}, true},
		{"less of one", transport.Durable{Groups: []*wire.GroupPosition{at(2, 3, 69), at(5, 1, 10)}}, false},
		{"an earlier term of one", transport.Durable{Groups: []*wire.GroupPosition{at(2, 2, 90), at(5, 1, 10)}}, false},
		{"no log of one", transport.Durable{Groups: []*wire.GroupPosition{at(2, 3, 70)}}, false},
		{"nothing", transport.Durable{}, false},
		{"one is deleted", transport.Durable{Groups: []*wire.GroupPosition{at(5, 1, 10)}, Created: 4}, true},
		{"both are deleted", transport.Durable{Created: 5}, true},
		{"the earlier one is deleted, the later one lost", transport.Durable{Created: 4}, false},
	} {
		err := g.admit(transport.Peer{Member: 9, Boot: 2, Incarnation: wire.ID{2}, Durable: test.durable})
		if refused := (*transport.RefusedError)(nil); (err == nil) != test.admits || err != nil && !errors.As(err, &refused) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	if err := g.admit(transport.Peer{Member: 8, Boot: 1, Incarnation: wire.ID{2}}); err != nil {
		t.Errorf("a member that has acknowledged nothing: %v", err)
	}
}

// What a removed member has acknowledged is kept nowhere: else each member that there ever was would have a record in each group.
func TestGroups_ForgetRemoved(t *testing.T) {
	g := withGroups(t, map[uint32]core.Position{2: {Term: 3, Index: 70}, 5: {Term: 1, Index: 10}})
	g.forget(9)
	for number, h := range *g.hosted.Load() {
		if err := h.log.SetLocal("last", []byte{}); err != nil { // behind what forget has submitted
			t.Fatal(err)
		}
		if records, err := h.log.Locals(acknowledgedRecord); err != nil || len(records) != 0 {
			t.Errorf("group %d: %v, %v", number, records, err)
		}
	}
}

// The hello reports each log, and which of the missing ones were erased.
func TestGroups_Durable(t *testing.T) {
	g := withGroups(t, map[uint32]core.Position{2: {}, 5: {}})
	if err := raftlog.Erase((*g.hosted.Load())[2].log, 4); err != nil {
		t.Fatal(err)
	}
	again := newGroups(g.groupsConfig)
	if err := again.open(); err != nil {
		t.Fatal(err)
	}
	var d transport.Durable
	again.durable(&d)
	if d.Created != 4 || len(d.Groups) != 1 || d.Groups[0].GetGroup() != 5 || d.Groups[0].GetIndex() != raftlog.BootstrapIndex {
		t.Errorf("%+v", d)
	}
}

// While the log of a group is erased, each hello has the group, or the number up to which logs are erased: a peer that has not dropped the
// group yet would else refuse this member as one that has forgotten it.
func TestGroups_DurableWhileErased(t *testing.T) {
	g := withGroups(t, map[uint32]core.Position{1: {}})
	whole := *g.hosted.Load()
	for range 5_000 {
		g.hosted.Store(&whole)
		g.erased.Store(0)
		var hellos sync.WaitGroup
		var ended atomic.Bool
		hellos.Go(func() {
			for !ended.Load() {
				var d transport.Durable
				if g.durable(&d); len(d.Groups) == 0 && d.Created == 0 {
					t.Error("neither the group nor its deletion")
				}
				runtime.Gosched() // on one processor the deletion would wait for the end of a time slice
			}
		})
		runtime.Gosched()
		g.noteErased(1, 1)
		ended.Store(true)
		hellos.Wait()
		if t.Failed() {
			return
		}
	}
}

// What the roster shows of a member changes the lists of each group that runs.
func TestGroups_ListsChanged(t *testing.T) {
	g := withGroups(t, map[uint32]core.Position{2: {}, 5: {}})
	var changed []uint32
	for number, h := range *g.hosted.Load() {
		h.use.ListsChanged = func(uint64) { changed = append(changed, number) }
		h.started.Store(number == 5)
	}
	g.listsChanged()
	if !slices.Equal(changed, []uint32{5}) {
		t.Errorf("the lists of the groups %v have changed, want [5]", changed)
	}
}

// A joint configuration may have the same voters, and is no settled one.
func TestIsConfOf(t *testing.T) {
	for _, test := range []struct {
		conf   *raftpb.ConfState
		voters []uint64
		want   bool
	}{
		{&raftpb.ConfState{Voters: []uint64{3, 1, 2}}, []uint64{1, 2, 3}, true},
		{&raftpb.ConfState{Voters: []uint64{1, 2, 3}, Learners: []uint64{4}}, []uint64{1, 2, 3}, true},
		{&raftpb.ConfState{Voters: []uint64{1, 2, 3}, VotersOutgoing: []uint64{1, 2, 4}}, []uint64{1, 2, 3}, false},
		{&raftpb.ConfState{Voters: []uint64{1, 2}}, []uint64{1, 2, 3}, false},
		{&raftpb.ConfState{}, []uint64{1}, false},
	} {
		if got := isConfOf(test.conf, test.voters); got != test.want {
			t.Errorf("%v as %v: %t", test.conf, test.voters, got)
		}
	}
}

// What further groups of one process take of its memory is bounded for all of them, and apart from the default group.
func TestGroups_ShareBudgets(t *testing.T) {
	cfg := alone(t)
	cfg.MaxCallBytes = 1 << 20
	m := start(t, cfg)
	defer m.Stop()
	one, other := m.groups.replica().Budgets, m.groups.replica().Budgets
	if one == nil || one != other || one.Core.Inboxes == nil || one.Core.Logs == nil || one.Calls == nil || m.replicaConfig().Budgets != nil {
		t.Errorf("further groups have the budgets %+v and %+v, the default one %+v", one, other, m.replicaConfig().Budgets)
	}
}
