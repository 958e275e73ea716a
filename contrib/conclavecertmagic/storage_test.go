package conclavecertmagic_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/certmagic"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclavetest"
	"github.com/conclave-go/conclave/contrib/conclavecertmagic"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A storage in a group and CertMagic's own in the file system are used alike, and differ in nothing.
func TestStorage_LikeFileStorage(t *testing.T) {
	group := conclavetest.Start(t, 1)
	node := group.Node(0)
	_, err := node.KV().Put(t.Context(), "certmagic", []byte("a key of another program"))
	must(t, err)
	_, err = node.KV().Put(t.Context(), "certmagicx/y", nil)
	must(t, err)
	ours := conclavecertmagic.New(node)
	theirs := &certmagic.FileStorage{Path: t.TempDir() + "/storage"}

	steps := []func(s certmagic.Storage) error{
		nil, // nothing is stored yet
		store("certificates/ca/a.com/a.com.crt", "certificate"),
		store("certificates/ca/a.com/a.com.key", "key"),
		store("certificates/ca/b.com/b.com.crt", "another certificate"),
		store("certificates/ca2/a.com/a.com.crt", "of another CA"),
		store("certificates/ca.x", "sorted between"),
		store("acme/account.json", "{}"),
		store("last", ""),
		store("/certificates//ca/a.com/a.com.key/", "another key"), // the same file
		remove("certificates/ca/a.com/a.com.crt"),
		remove("certificates/ca/a.com/a.com.crt"), // deleted already
		remove("certificates/c"),                  // the beginning of a name is no directory
		remove("certificates/ca"),
		remove("nothing"),
		remove("last"),
	}
	for i, step := range steps {
		if step != nil {
			must(t, step(ours))
			must(t, step(theirs))
		}
		want, got := observed(t, theirs), observed(t, ours)
		for question, answer := range want {
			if got[question] != answer {
				t.Errorf("after step %d, %s: got %s, want %s", i, question, got[question], answer)
			}
		}
	}
}

func store(key, value string) func(s certmagic.Storage) error {
	return func(s certmagic.Storage) error { return s.Store(context.Background(), key, []byte(value)) }
}

func remove(key string) func(s certmagic.Storage) error {
	return func(s certmagic.Storage) error { return s.Delete(context.Background(), key) }
}

// observed asks a storage everything.
func observed(t *testing.T, s certmagic.Storage) map[string]string {
	t.Helper()
	ctx := t.Context()
	answers := make(map[string]string)
	for _, key := range []string{
		"", "certificates", "certificates/", "certificates/c", "certificates/ca", "certificates/ca/a.com", "certificates/ca.x",
		"certificates/ca/a.com/a.com.crt", "certificates/ca/a.com/a.com.key", "certificates/ca/b.com/b.com.crt", "last", "nothing", "acme",
	} {
		answers["exists "+key] = fmt.Sprint(s.Exists(ctx, key))
		for _, recursive := range []bool{false, true} {
			list, err := s.List(ctx, key, recursive)
			slices.Sort(list)
			answers[fmt.Sprintf("list %q, recursive %v", key, recursive)] = fmt.Sprint(list, kind(err))
		}
		info, err := s.Stat(ctx, key)
		if info.Modified.IsZero() != (err != nil) {
			t.Errorf("%v: %q was modified %v, error %v", s, key, info.Modified, err)
		}
		if !info.IsTerminal {
			info.Size = 0 // that of a directory depends on the file system
		}
		answers["stat "+key] = fmt.Sprint(info.Key, info.Size, info.IsTerminal, kind(err))
		if !info.IsTerminal && err == nil {
			continue // FileStorage reads no directory; its error has no name
		}
		value, err := s.Load(ctx, key)
		answers["load "+key] = fmt.Sprintf("%q %v %v", value, value == nil, kind(err))
	}
	return answers
}

func kind(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, fs.ErrNotExist):
		return "does not exist"
	}
	return err.Error()
}

func TestStorage_SharedByMembers(t *testing.T) {
	group := conclavetest.Start(t, 3)
	a, b := conclavecertmagic.New(group.Node(0)), conclavecertmagic.New(group.Node(1))
	large := bytes.Repeat([]byte("x"), 512<<10)
	must(t, a.Store(t.Context(), "large", large))
	got, err := b.Load(t.Context(), "large")
	if err != nil || !bytes.Equal(got, large) {
		t.Errorf("loaded %d bytes, %v", len(got), err)
	}
	first, err := b.Stat(t.Context(), "large")
	must(t, err)
	must(t, b.Store(t.Context(), "large", []byte("small")))
	second, err := a.Stat(t.Context(), "large")
	must(t, err)
	if first.Size != 512<<10 || second.Size != 5 || !second.Modified.After(first.Modified) {
		t.Errorf("stat %+v, then %+v", first, second)
	}
	other := conclavecertmagic.New(group.Node(2), conclavecertmagic.Prefix("other/"))
	if other.Exists(t.Context(), "large") {
		t.Error("the file exists with another prefix")
	}
}

func TestStorage_Refuses(t *testing.T) {
	group := conclavetest.Start(t, 1)
	s := conclavecertmagic.New(group.Node(0))
	ctx := t.Context()
	must(t, s.Store(ctx, "kept", []byte("old")))
	for _, c := range []struct {
		name string
		err  error
		want error
	}{
		{"a value of more than 512 KiB", s.Store(ctx, "kept", make([]byte, 512<<10+1)), conclave.ErrTooLarge},
		{"a key of more than 512 bytes", s.Store(ctx, strings.Repeat("k", 510), nil), conclave.ErrTooLarge},
		{"a file in place of the root", s.Store(ctx, "/", nil), fs.ErrInvalid},
		{"deletion of the root", s.Delete(ctx, ""), fs.ErrInvalid},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, c.err, c.want)
		}
	}
	if value, err := s.Load(ctx, "kept"); string(value) != "old" {
		t.Errorf("%q, %v", value, err)
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.Store(done, "kept", []byte("new")); !errors.Is(err, context.Canceled) {
		t.Errorf("Store with a cancelled context: %v", err)
	}
	if _, err := s.Load(done, "kept"); !errors.Is(err, context.Canceled) {
		t.Errorf("Load with a cancelled context: %v", err)
	}
}
