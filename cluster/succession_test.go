package cluster

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/identity"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
)

// registry is a group's machine that is asked for registrations only.
type registry struct {
	t       *testing.T
	machine *machine.Machine
	index   uint64
}

func newRegistry(t *testing.T) *registry { return &registry{t: t, machine: machine.New()} }

// register applies a registration and returns the code of its outcome.
func (r *registry) register(id wire.ID, c *wire.Register) wire.Code {
	r.t.Helper()
	encode := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			r.t.Fatal(err)
		}
		return b
	}
	call := &wire.Call{Seq: 1, Command: encode(&wire.Command{Op: &wire.Command_Register{Register: c}})}
	s := &wire.Submission{Member: c.GetMember(), Incarnation: id[:], Calls: []*wire.Call{call}}
	r.index++
	result := r.machine.Apply(r.index, 1, encode(&wire.Batch{Version: wire.BatchVersion, Submissions: []*wire.Submission{s}}))
	return result.Outcomes[0].Reply.GetCode()
}

// startProcess loads the identity on a disk and returns it with its registration.
func startProcess(t *testing.T, log *raftlog.Log) (*identity.Identity, *wire.Register) {
	t.Helper()
	id, err := identity.Load(log, "group")
	if err != nil {
		t.Fatal(err)
	}
	c := (&Member{identity: id}).Registration()
	c.Ttl = machine.MinTTL
	return id, c
}

// Processes of one member stop at every point of their registration: before it is sent,
// before or after it is applied, before and after they have recorded its outcome, with
// some of the unsynced data lost. A registration may also be applied late. None locks the
// next process out.
func TestSuccession_CrashAtAnyPoint(t *testing.T) {
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 10))
		group, disk := newRegistry(t), vfs.NewCrashableMem()
		var late []func()
		for start := range 20 {
			withLog(t, disk, func(log *raftlog.Log) {
				id, c := startProcess(t, log)
				power := func() {
					disk = disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50 * rng.IntN(3), RNG: rng})
				}
				power()
				if rng.IntN(4) == 0 {
					return // before it was sent
				}
				if rng.IntN(3) == 0 {
					late = append(late, func() { group.register(id.Incarnation, c) })
					return
				}
				if code := group.register(id.Incarnation, c); code != wire.Code_OK {
					t.Fatalf("seed %d: start %d: %v", seed, start+1, code)
				}
				if rng.IntN(2) == 0 {
					return // before it knew the outcome
				}
				if err := id.Registered(); err != nil {
					t.Fatal(err)
				}
				if rng.IntN(2) == 0 {
					power()
				}
			})
			if len(late) > 0 && rng.IntN(2) == 0 {
				late[0]() // refused if a later process has registered
				late = late[1:]
			}
		}
	}
}

// More processes in a row than there is room for tokens stop without an outcome: the
// last one is accepted, whichever of them was applied.
func TestSuccession_ManyUnknownOutcomes(t *testing.T) {
	for _, applied := range []int{0, identity.MaxTokens - 2, identity.MaxTokens - 1, identity.MaxTokens, 2 * identity.MaxTokens} {
		group, disk := newRegistry(t), vfs.NewCrashableMem()
		for start := range 3 * identity.MaxTokens {
			withLog(t, disk, func(log *raftlog.Log) {
				id, c := startProcess(t, log)
				if len(c.GetTokens()) > identity.MaxTokens {
					t.Fatalf("start %d presents %d tokens", start+1, len(c.GetTokens()))
				}
				if start == applied || start == 3*identity.MaxTokens-1 {
					if code := group.register(id.Incarnation, c); code != wire.Code_OK {
						t.Fatalf("start %d after start %d was applied: %v", start+1, applied+1, code)
					}
				}
			})
			disk = disk.CrashClone(vfs.CrashCloneCfg{})
		}
	}
}

// Two directories of one member: the group refuses the one that has not registered last,
// however often it is started.
func TestSuccession_CopyRefused(t *testing.T) {
	group, disk := newRegistry(t), vfs.NewCrashableMem()
	start := func(disk *vfs.MemFS) (code wire.Code) {
		withLog(t, disk, func(log *raftlog.Log) {
			id, c := startProcess(t, log)
			if code = group.register(id.Incarnation, c); code == wire.Code_OK {
				if err := id.Registered(); err != nil {
					t.Fatal(err)
				}
				if tokens := id.Get().GetTokens(); len(tokens) != 1 || !bytes.Equal(tokens[0], c.GetNextToken()) {
					t.Fatalf("after its registration it has the tokens %x, want %x", tokens, c.GetNextToken())
				}
			}
		})
		return code
	}
	want := func(who string, got, want wire.Code) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %v, want %v", who, got, want)
		}
	}
	want("the first start", start(disk), wire.Code_OK)
	copied := disk.CrashClone(vfs.CrashCloneCfg{})
	want("the copy, with the original stopped", start(copied), wire.Code_OK)
	for range 5 {
		want("the original after it", start(disk), wire.Code_STALE_BOOT)
	}
	want("the copy again", start(copied), wire.Code_OK)
}
