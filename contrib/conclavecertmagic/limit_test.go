package conclavecertmagic_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/conclave-go/conclave/conclavetest"
	"github.com/conclave-go/conclave/contrib/conclavecertmagic"
)

// The longest file of all has a key of 512 bytes with the prefix, so its name with a slash is no
// prefix of a key.
func TestStorage_LongestKey(t *testing.T) {
	group := conclavetest.Start(t, 1)
	s := conclavecertmagic.New(group.Node(0))
	ctx := t.Context()
	longest := strings.Repeat("k", 512-len("certmagic/"))
	for _, key := range []string{longest, longest + "k"} {
		if s.Exists(ctx, key) {
			t.Errorf("%d bytes: exists", len(key))
		}
		if _, err := s.Stat(ctx, key); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%d bytes: Stat: %v", len(key), err)
		}
		if _, err := s.Load(ctx, key); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%d bytes: Load: %v", len(key), err)
		}
		if _, err := s.List(ctx, key, true); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%d bytes: List: %v", len(key), err)
		}
		if err := s.Delete(ctx, key); err != nil {
			t.Errorf("%d bytes: Delete of a key that does not exist: %v", len(key), err)
		}
	}
	must(t, s.Store(ctx, longest, []byte("x")))
	if info, err := s.Stat(ctx, longest); err != nil || !info.IsTerminal || !s.Exists(ctx, longest) {
		t.Errorf("Stat: %+v, %v", info, err)
	}
	if list, err := s.List(ctx, longest, true); err != nil || len(list) != 0 {
		t.Errorf("List of a file: %v, %v", list, err)
	}
	must(t, s.Delete(ctx, longest))
	if s.Exists(ctx, longest) {
		t.Error("the file exists after Delete")
	}
}
