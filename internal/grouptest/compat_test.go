package grouptest

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

var writeCompat = flag.String("write-compat", "", "write the directories of a group of this version to testdata/compat under this name")

// Directories that a group of three of each earlier version wrote, until all members were
// killed. Every later build must open them and find what they hold: see CONTRIBUTING.md.
func TestCompat_OpensDirectoriesOfEarlierVersions(t *testing.T) {
	golden := filepath.Join("testdata", "compat")
	if *writeCompat != "" {
		writeGroup(t, filepath.Join(golden, *writeCompat))
	}
	versions, err := os.ReadDir(golden)
	if err != nil || len(versions) == 0 {
		t.Fatal("no directories", err)
	}
	for _, version := range versions {
		t.Run(version.Name(), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "copy")
			Must(t, os.CopyFS(dir, os.DirFS(filepath.Join(golden, version.Name()))))
			var want written
			record, err := os.ReadFile(filepath.Join(dir, recordName))
			Must(t, err)
			Must(t, json.Unmarshal(record, &want))
			for i := range want.Members {
				want.checkDirectory(t, memberDir(dir, i))
			}
			want.checkGroup(t, Start(t, len(want.Members), inDirectories(dir)))
		})
	}
}

// recordName is the file beside the directories that says what they hold.
const recordName = "written.json"

// written is what the directories of a group hold.
type written struct {
	Members []conclave.MemberID
	Session conclave.SessionID        // without a TTL
	Fences  map[string]conclave.Fence // of the locks that are held, and of the permits
	Keys    []conclave.Entry
}

func memberDir(dir string, i int) string { return filepath.Join(dir, fmt.Sprint("member-", i)) }

// inDirectories has each member use its directory of a group.
func inDirectories(dir string) Option {
	return Edit(func(i int, c *conclave.Config, _ *cluster.Seams) { c.Dir = memberDir(dir, i) })
}

// writeGroup forms a group in directories, fills it and kills all members.
func writeGroup(t *testing.T, dir string) {
	t.Helper()
	Must(t, os.RemoveAll(dir))
	g := Start(t, 3, inDirectories(dir))
	w := written{Fences: make(map[string]conclave.Fence)}
	for i := range g.Nodes {
		w.Members = append(w.Members, g.ID(i))
	}
	lasting := MustSession(t, g.Nodes[0], &conclave.SessionConfig{Name: "lasting", TTL: conclave.NoTTL, LockDelay: time.Minute, NoChecks: true})
	w.Session = lasting.ID()
	for _, lock := range []string{"lasting", "queued"} {
		w.Fences[lock] = MustLock(t, lasting.FencedLock(lock))
	}
	permits, err := MustAcquire(t, lasting.Semaphore("permits", 3), 2).Fence()
	Must(t, err)
	w.Fences["permits"] = permits
	StartLock(t, g.Nodes[1].FencedLock("queued"))
	leased := MustSession(t, g.Nodes[1], &conclave.SessionConfig{Name: "leased", TTL: time.Minute, LockDelay: time.Minute})
	w.Fences["leased"] = MustLock(t, leased.FencedLock("leased"))
	delayed := MustSession(t, g.Nodes[2], &conclave.SessionConfig{LockDelay: time.Minute})
	MustLock(t, delayed.FencedLock("delayed"))
	Must(t, g.Nodes[0].CloseSession(t.Context(), delayed.ID())) // invalidated: its lock-delay begins
	kv := g.Nodes[2].KV()
	fenced, err := kv.PutFenced(t.Context(), "fenced", []byte("value"), w.Fences["lasting"])
	Must(t, err)
	w.Keys = []conclave.Entry{
		MustPut(t, kv, "plain", "value", conclave.WithFlags(7)), fenced, MustAcquireKey(t, kv, "held", "value", lasting),
	}
	for i := range g.Nodes {
		g.AwaitApplied(i)
	}
	g.KillAll()
	record, err := json.MarshalIndent(w, "", "\t")
	Must(t, err)
	Must(t, os.WriteFile(filepath.Join(dir, recordName), append(record, '\n'), 0o644))
}

// checkDirectory checks the state that one member has on its disk, before its group runs:
// time stands still, and the processes are registered that were killed.
func (w written) checkDirectory(t *testing.T, dir string) {
	t.Helper()
	store, err := storage.Open(storage.Options{Dir: dir})
	Must(t, err)
	defer store.Close()
	log, err := raftlog.Open(store)
	Must(t, err)
	m, err := raftlog.Load(log, machine.Load)
	Must(t, err)
	lock := func(name string) machine.LockView {
		v, _ := machine.LockQuery{Space: wire.Space_LOCK, Name: name}.Begin(m)().(*machine.LockView)
		if v == nil {
			t.Fatalf("%s: lock %q is not there", dir, name)
		}
		return *v
	}
	for _, name := range []string{"lasting", "queued", "leased"} {
		if v := lock(name); !v.Held || v.Fence != uint64(w.Fences[name]) {
			t.Errorf("%s: lock %+v, want fence %v", dir, v, w.Fences[name])
		}
	}
	if v := lock("queued"); v.Waiters != 1 {
		t.Errorf("%s: lock %+v, want a waiter", dir, v)
	}
	if v := lock("delayed"); v.Held || v.Delay <= 0 || v.Delay > int64(time.Minute) {
		t.Errorf("%s: lock %+v, want its lock-delay", dir, v)
	}
}

// checkGroup checks what the processes that were killed have left to the next ones.
func (w written) checkGroup(t *testing.T, g *Group) {
	t.Helper()
	for i, n := range g.Nodes {
		if g.ID(i) != w.Members[i] || g.Boot(i) < 2 {
			t.Errorf("member %d is %v in its process %d; want %v in a later one", i, g.ID(i), g.Boot(i), w.Members[i])
		}
		for _, want := range w.Keys {
			WantEntry(t, MustGet(t, n.KV(), want.Key), want)
		}
		w.checkHeld(t, n)
	}
	lasting := MustAttach(t, g.Nodes[1], w.Session)
	Must(t, lasting.Close(t.Context()))
	for name, fence := range w.Fences {
		if again := MustLock(t, g.Nodes[2].FencedLock("new "+name)); again <= fence {
			t.Errorf("fence %v after %v", again, fence)
		}
	}
	if f := MustLock(t, g.Nodes[0].FencedLock("lasting")); f <= w.Fences["lasting"] {
		t.Errorf("fence %v after %v", f, w.Fences["lasting"])
	}
}

// checkHeld checks what the session without a TTL holds. The waiter and the session with a
// TTL have ended with their processes.
func (w written) checkHeld(t *testing.T, n *conclave.Node) {
	t.Helper()
	for _, name := range []string{"lasting", "queued"} {
		info, err := n.FencedLock(name).Info(t.Context())
		if err != nil || info.Session != w.Session || info.Fence != w.Fences[name] || info.Node != w.Members[0] || info.Waiters != 0 {
			t.Errorf("lock %+v, %v; want session %v and fence %v", info, err, w.Session, w.Fences[name])
		}
	}
	if info, err := n.FencedLock("leased").Info(t.Context()); err != nil || info.Held {
		t.Errorf("lock %+v, %v", info, err)
	}
	permits := SemaphoreInfo(t, n.Semaphore("permits", 3))
	want := conclave.PermitInfo{Session: w.Session, Node: w.Members[0], SessionName: "lasting", Fence: w.Fences["permits"], Permits: 2}
	if permits.Limit != 3 || permits.Available != 1 || len(permits.Holders) != 1 || permits.Holders[0] != want {
		t.Errorf("semaphore %+v, want the holder %+v", permits, want)
	}
	if s, ok := FindSession(t, n, w.Session); !ok || s.Name != "lasting" || s.TTL != conclave.NoTTL || s.LockDelay != time.Minute {
		t.Errorf("session %+v", s)
	}
}
