package conclave_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

func TestLockSet_Invalid(t *testing.T) {
	n := grouptest.Alone(t)
	many := make([]string, 129)
	for i := range many {
		many[i] = fmt.Sprint("x", i)
	}
	for name, row := range map[string]struct {
		set  *conclave.LockSet
		want error
		text string
	}{
		"no names":    {n.LockSet(nil), conclave.ErrInvalid, "no names"},
		"too many":    {n.LockSet(many), conclave.ErrTooLarge, "the limit is 128"},
		"with shared": {n.LockSet(many[:100], conclave.Shared(many[100:]...)), conclave.ErrTooLarge, "the limit is 128"},
		"twice":       {n.LockSet([]string{"a", "b", "a"}), conclave.ErrInvalid, `"a" is there twice`},
		"both modes":  {n.LockSet([]string{"a"}, conclave.Shared("a")), conclave.ErrInvalid, `"a" is there twice`},
		"empty name":  {n.LockSet([]string{"a", ""}), conclave.ErrInvalid, `""`},
		"long name":   {n.LockSet([]string{strings.Repeat("x", 513)}), conclave.ErrTooLarge, "513"},
		"reentrant":   {n.LockSet([]string{"a"}, conclave.Reentrant(0)), conclave.ErrInvalid, "Reentrant"},
		"lingering":   {n.LockSet([]string{"a"}, conclave.Linger(time.Second)), conclave.ErrInvalid, "Linger"},
		"label":       {n.LockSet([]string{"a"}, conclave.WithLabel("\x00")), conclave.ErrInvalid, "label"},
	} {
		for method, call := range map[string]func() error{
			"Lock":    func() error { _, err := row.set.Lock(t.Context()); return err },
			"TryLock": func() error { _, err := row.set.TryLock(t.Context()); return err },
			"Fence":   func() error { _, err := row.set.Fence(); return err },
			"FenceOf": func() error { _, err := row.set.FenceOf("a"); return err },
			"Info":    func() error { _, err := row.set.Info(t.Context()); return err },
			"Extend":  func() error { return row.set.Extend(t.Context(), time.Minute) },
			"Unlock":  func() error { return row.set.Unlock(t.Context()) },
		} {
			err := call()
			grouptest.WantError(t, err, row.want)
			if !strings.Contains(err.Error(), row.text) {
				t.Errorf("%s, %s: %v", name, method, err)
			}
		}
	}
	mustLockSet(t, n.LockSet(many[:128]))
	_, err := n.LockSet([]string{"a"}).FenceOf("b")
	grouptest.WantError(t, err, conclave.ErrInvalid)
	for _, names := range [][]string{{"b"}, {}, nil} { // names that are computed may be none
		_, err = n.FencedLock("a", conclave.Shared(names...)).Lock(t.Context())
		grouptest.WantError(t, err, conclave.ErrInvalid)
		_, err = n.RWLock("a", conclave.Shared(names...)).RLock(t.Context())
		grouptest.WantError(t, err, conclave.ErrInvalid)
	}
}

// The slices of a caller are its own.
func TestLockSet_CopiesNames(t *testing.T) {
	n := grouptest.Alone(t)
	names, shared := []string{"a", "b"}, []string{"c"}
	set := n.LockSet(names, conclave.Shared(shared...))
	names[0], shared[0] = "x", "y"
	mustLockSet(t, set)
	for _, name := range []string{"a", "b", "c"} {
		if _, err := set.FenceOf(name); err != nil {
			t.Error(err)
		}
	}
	if list := grouptest.Locks(t, n, ""); len(list) != 3 || list[0].Name != "a" || list[2].Name != "c" {
		t.Errorf("%+v", list)
	}
}
