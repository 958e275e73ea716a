package groups

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster/backup"
	gt "github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/internal/wire"
)

// document is a part of a backup.
type document struct {
	header *wire.BackupHeader
	pairs  []wire.Change
}

// documents reads a backup.
func documents(t *testing.T, b []byte) (list []*document) {
	t.Helper()
	r, err := backup.Open(bytes.NewReader(b))
	for err == nil {
		d := &document{header: r.Header}
		for key, value := range r.All(func() error { return nil }, &err) {
			d.pairs = append(d.pairs, wire.Change{Key: bytes.Clone(key), Value: bytes.Clone(value)})
		}
		list = append(list, d)
		if err == nil {
			err = r.Next()
		}
	}
	if err != io.EOF {
		t.Fatal(err)
	}
	return list
}

// series writes documents as a backup.
func series(t *testing.T, list ...*document) []byte {
	t.Helper()
	var b bytes.Buffer
	s := backup.NewSeries()
	for _, d := range list {
		w, err := backup.NewWriter(&b, d.header)
		if err == nil {
			err = errors.Join(w.Add(d.pairs), w.End())
		}
		gt.Must(t, err)
		s.Add(w)
	}
	gt.Must(t, s.End(&b))
	return b.Bytes()
}

// seal changes the state of a document to that of a group that is being deleted.
func (d *document) seal(t *testing.T) {
	t.Helper()
	for i, p := range d.pairs {
		var state wire.MachineState
		if err := proto.Unmarshal(p.Value, &state); err != nil || state.GetFollowing().GetGroup() != d.header.GetFurther() {
			continue
		}
		state.Following.Sealed = true
		var err error
		d.pairs[i].Value, err = proto.Marshal(&state)
		gt.Must(t, err)
		return
	}
	t.Fatal("no state of a further group")
}

// A group without a document is not in the restored cluster, and neither is one that was being deleted. Their names can be given to others.
func TestRestore_GroupsLeftOut(t *testing.T) {
	t.Parallel()
	n := alone(t, filepath.Join(t.TempDir(), "old"))
	a := use(t, create(t, n, "a"), "of a")
	b := use(t, create(t, n, "b"), "of b")
	for _, left := range []string{"a", "b"} {
		kept := map[string]string{"a": "b", "b": "a"}[left]
		d := documents(t, backupOf(t, n))
		without := slices.DeleteFunc(slices.Clone(d), func(d *document) bool { return d.header.GetName() == left })
		for _, d := range d {
			if d.header.GetName() == left {
				d.seal(t)
			}
		}
		for _, backup := range [][]byte{series(t, without...), series(t, d...)} {
			r := restored(t, backup)
			if names := further(t, r); !slices.Equal(names, []string{kept}) {
				t.Errorf("groups %v without %s", names, left)
			}
			wantRestored(t, r.WithGroup(kept), "of "+kept, a, b)
			if f := gt.MustLock(t, create(t, r, left).FencedLock("x")); f <= max(a, b) {
				t.Errorf("fence %v after %v and %v", f, a, b)
			}
			gt.Kill(r)
		}
	}
}

// A document that the default group does not list, or with the state of another group than it says, is refused.
func TestRestore_ForeignDocuments(t *testing.T) {
	t.Parallel()
	n := alone(t, filepath.Join(t.TempDir(), "old"))
	create(t, n, "a")
	create(t, n, "b")
	dir := filepath.Join(t.TempDir(), "restored")
	for name, change := range map[string]func(d []*document){
		"a number that is not listed":        func(d []*document) { d[2].header.Further = 3 },
		"another name":                       func(d []*document) { d[2].header.Name = "c" },
		"the name of another one":            func(d []*document) { d[2].header.Name = "a" },
		"the state of another one":           func(d []*document) { d[2].pairs = d[1].pairs },
		"two states exchanged":               func(d []*document) { d[1].pairs, d[2].pairs = d[2].pairs, d[1].pairs },
		"the state of the default group":     func(d []*document) { d[1].pairs = d[0].pairs },
		"a default group that follows one":   func(d []*document) { d[0].pairs = d[1].pairs },
		"no state":                           func(d []*document) { d[1].pairs = nil },
		"a default group without a list":     func(d []*document) { d[0].pairs = nil },
		"an index that Raft cannot go on to": func(d []*document) { d[2].header.Index = 1<<64 - 1 },
		"a cluster without a name":           func(d []*document) { d[0].header.Group, d[1].header.Group, d[2].header.Group = "", "", "" },
	} {
		d := documents(t, backupOf(t, n))
		change(d)
		err := conclave.Restore(t.Context(), dir, bytes.NewReader(series(t, d...)))
		if _, missing := os.Stat(dir); !errors.Is(err, conclave.ErrCorrupt) || !os.IsNotExist(missing) {
			t.Errorf("%s: %v, directory: %v", name, err, missing)
		}
	}
}

// A state that no group can have come to, from which a new one could not go on, is refused before anything is changed: also of one of several groups.
func TestRestore_StatesRefused(t *testing.T) {
	t.Parallel()
	n := alone(t, filepath.Join(t.TempDir(), "old"))
	use(t, create(t, n, "a"), "of a")
	dir := filepath.Join(t.TempDir(), "restored")
	const most = 1<<64 - 1
	state := func(change func(*wire.MachineState)) func(kind byte, value []byte) []byte {
		return altered('m', new(wire.MachineState), func(m proto.Message) { change(m.(*wire.MachineState)) })
	}
	for name, test := range map[string]struct {
		document int
		change   func(kind byte, value []byte) []byte
		want     error
	}{
		"group time":               {0, state(func(s *wire.MachineState) { s.Now = most / 2 }), conclave.ErrCorrupt},
		"group time of a":          {1, state(func(s *wire.MachineState) { s.Now = most / 2 }), conclave.ErrCorrupt},
		"changes":                  {0, state(func(s *wire.MachineState) { s.Changes = most }), conclave.ErrCorrupt},
		"changes of a":             {1, state(func(s *wire.MachineState) { s.Changes = most }), conclave.ErrCorrupt},
		"lock indexes":             {0, state(func(s *wire.MachineState) { s.LockFloor = most }), conclave.ErrCorrupt},
		"the lock index of a key":  {1, altered('k', new(wire.KeyState), func(m proto.Message) { m.(*wire.KeyState).LockIndex = most }), conclave.ErrCorrupt},
		"places in queues":         {0, state(func(s *wire.MachineState) { s.Positions = most }), conclave.ErrCorrupt},
		"ended sessions":           {1, state(func(s *wire.MachineState) { s.Ended = most }), conclave.ErrCorrupt},
		"the last epoch of a":      {1, state(func(s *wire.MachineState) { s.Epoch = 1<<16 - 1 }), conclave.ErrTooLarge},
		"a is created later":       {0, altered('G', new(wire.GroupState), func(m proto.Message) { m.(*wire.GroupState).Created = most }), conclave.ErrCorrupt},
		"nothing, written by hand": {0, state(func(*wire.MachineState) {}), nil},
	} {
		d := documents(t, backupOf(t, n))
		changed := false
		for i, p := range d[test.document].pairs {
			if value := test.change(p.Key[0], p.Value); value != nil {
				d[test.document].pairs[i].Value, changed = value, true
			}
		}
		err := conclave.Restore(t.Context(), dir, bytes.NewReader(series(t, d...)))
		if _, missing := os.Stat(dir); !errors.Is(err, test.want) || os.IsNotExist(missing) != (test.want != nil) || !changed {
			t.Errorf("%s: %v, want %v; directory: %v, changed: %t", name, err, test.want, missing, changed)
		}
		gt.Must(t, os.RemoveAll(dir))
	}
}

// altered returns a function that changes the records of a kind; nil: it is of another one.
func altered(of byte, m proto.Message, change func(proto.Message)) func(kind byte, value []byte) []byte {
	return func(kind byte, value []byte) []byte {
		if kind != of || proto.Unmarshal(value, m) != nil {
			return nil
		}
		change(m)
		value, _ = proto.Marshal(m)
		return value
	}
}
