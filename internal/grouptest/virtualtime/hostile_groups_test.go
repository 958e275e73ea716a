package virtualtime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/internal/hostile"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// impostor connects to members with the key of one that was killed.
type impostor struct {
	*membership
	dial func(to int, kind wire.Kind, edit func(*wire.Hello)) (*hostile.Conn, error)
}

func impersonate(g *membership, liar int) *impostor {
	g.T.Helper()
	g.Kill(liar)
	key, record := grouptest.Stolen(g.T, storage.Options{Dir: g.Configs[liar].Dir, FS: g.Seams[liar].FS})
	p := hostile.AsMember(key, record, wire.Kind_PEER) // its process
	return &impostor{membership: g, dial: func(to int, kind wire.Kind, edit func(*wire.Hello)) (*hostile.Conn, error) {
		h := proto.CloneOf(p)
		h.Kind, h.Nonce = kind, hostile.Hello(key, kind).Nonce
		h.GroupsCreated = math.MaxUint32 // as if the logs of all others were erased
		if edit != nil {
			edit(h)
		}
		c, err := hostile.Replace(func() (net.Conn, error) { return g.Net.Dial(context.Background(), liar, g.Configs[to].Bind) }, key, h)
		if err == nil {
			g.T.Cleanup(func() { c.Close() })
		}
		return c, err
	}}
}

// nowhere is a group that does not exist.
func nowhere(i int) uint32 { return math.MaxUint32 - uint32(i) }

// frames are frames of every kind of a group that does not exist.
func (p *impostor) frames(group uint32) (list []*wire.Frame) {
	p.T.Helper()
	vote, err := proto.Marshal(&raftpb.Message{
		Type: raftpb.MsgVote.Enum(), From: new(uint64(1)), To: new(uint64(2)), Term: new(uint64(1 << 40)), Index: new(uint64(1 << 40)), LogTerm: new(uint64(1 << 40)),
	})
	grouptest.Must(p.T, err)
	for _, f := range []*wire.Frame{
		{Body: &wire.Frame_Raft{Raft: vote}},
		{Body: &wire.Frame_Raft{Raft: make([]byte, 64<<10)}},
		{Body: &wire.Frame_Submission{Submission: &wire.Submission{Member: 1, Calls: make([]*wire.Call, 2000)}}},
		{Body: &wire.Frame_Digest{Digest: &wire.Digest{Index: 1 << 60}}},
		{Body: &wire.Frame_CrashEvidence{CrashEvidence: &wire.CrashEvidence{Processes: []*wire.CrashedProcess{{Member: 1, Boot: 1}}}}},
	} {
		f.Group = group
		list = append(list, f)
	}
	return list
}

// A member sends frames and snapshots of groups that do not exist, at a rate that fills each queue. Nothing of them remains, and
// all groups work meanwhile.
func TestHostile_GroupsThatDoNotExist(t *testing.T) {
	inMembershipBubble(t, 3, func(g *membership) {
		t := g.T
		g.tenants(0, "a")
		liar := impersonate(g, 2)
		peer, err := liar.dial(0, wire.Kind_PEER, nil)
		grouptest.Must(t, err)
		for i := range 200 {
			for _, f := range liar.frames(nowhere(i)) {
				grouptest.Must(t, peer.SendMessage(f))
			}
		}
		refused := 0
		for i := range 20 {
			c, err := liar.dial(0, wire.Kind_SNAPSHOT, nil)
			grouptest.Must(t, err)
			grouptest.Must(t, c.SendMessage(&wire.SnapshotHeader{Version: wire.SnapshotVersion, Group: nowhere(i)}))
			if answer, err := c.Receive(); err == nil && len(answer) > 0 {
				refused++
			}
			c.Close()
			pass(time.Second)
		}
		g.wantTenants("a")
		g.KillAll()
		if logs := logsOf(t, g, 0); !slices.Equal(logs, []uint32{1}) {
			t.Errorf("logs of the groups %v", logs)
		}
		hostile.Attempt(t, "15", "send 1,000 frames and 20 snapshots of groups that do not exist", "the frames are dropped, %d snapshots refused, and no log begins", refused)
	})
}

// logsOf returns the numbers of the further groups of which a member's directory has anything.
func logsOf(t testing.TB, g *membership, i int) []uint32 {
	t.Helper()
	store, err := storage.Open(storage.Options{Dir: g.Configs[i].Dir, FS: g.Seams[i].FS, Access: storage.ReadOnly})
	grouptest.Must(t, err)
	defer store.Close()
	log, err := raftlog.Open(store)
	grouptest.Must(t, err)
	numbers, err := raftlog.Groups(log)
	grouptest.Must(t, err)
	return numbers
}

// A member reports positions in groups that do not exist, some twice, as many as fit in a hello. It is accepted, as it has
// forgotten nothing, and costs no more than the hello; a longer one is refused.
func TestHostile_HelloWithManyGroups(t *testing.T) {
	inMembershipBubble(t, 3, func(g *membership) {
		t := g.T
		g.tenants(0, "a")
		liar := impersonate(g, 2)
		for _, test := range []struct {
			groups  int
			refused bool
		}{{2048, false}, {2049, true}, {30_000, true}} {
			c, err := liar.dial(0, wire.Kind_GOSSIP_PACKETS, func(h *wire.Hello) {
				for i := range test.groups {
					h.Groups = append(h.Groups, &wire.GroupPosition{Group: nowhere(i / 2), Term: 1 << 40, Index: 1 << 40})
				}
			})
			if (err != nil) != test.refused {
				t.Errorf("%d groups: %v", test.groups, err)
			}
			if err == nil {
				c.Close()
			}
			hostile.Attempt(t, "15", fmt.Sprintf("report positions in %d groups that do not exist, each twice", test.groups), "%v", err)
		}
		g.wantTenants("a")
	})
}

// Callers on several members create more groups than there may be. As many as there may be are created, the other calls return ErrBusy,
// and a deletion makes room for one.
func TestCreateGroup_Flood(t *testing.T) {
	const most = 1000
	inMembershipBubble(t, 1, func(g *membership) {
		t := g.T
		ctx := grouptest.Within(t, time.Hour)
		var callers sync.WaitGroup
		var busy atomic.Int64
		for w := range 8 {
			callers.Go(func() {
				for i := range 130 {
					_, err := g.Nodes[0].CreateGroup(ctx, fmt.Sprint(w, "/", i), conclave.GroupConfig{})
					switch {
					case errors.Is(err, conclave.ErrBusy):
						busy.Add(1)
					case err != nil:
						t.Error(err)
					}
				}
			})
		}
		callers.Wait()
		list, err := grouptest.Collect(g.Nodes[0].Groups(ctx))
		grouptest.Must(t, err)
		if len(list) != 1+most || busy.Load() != 8*130-most {
			t.Errorf("%d groups, ErrBusy %d times", len(list), busy.Load())
		}
		_, err = g.Nodes[0].CreateGroup(ctx, list[most].Name, conclave.GroupConfig{}) // it exists
		grouptest.Must(t, err)
		grouptest.Must(t, g.Nodes[0].DeleteGroup(ctx, list[1].Name))
		g.tenants(0, "another")
		g.wantTenants("another", list[most].Name)
	})
}
