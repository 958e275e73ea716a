package conclave_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// A member and a client list the same keys and folders, from any key on, with the beginnings of values.
func TestBrowse(t *testing.T) {
	n := grouptest.Alone(t)
	ctx, kv := t.Context(), n.KV()
	for i := range 300 { // more than a page that is read at a time
		_, err := kv.Put(ctx, fmt.Sprintf("many/%03d", i), nil)
		grouptest.Must(t, err)
	}
	long := strings.Repeat("x", 1000)
	_, err := kv.Put(ctx, "long", []byte(long))
	grouptest.Must(t, err)
	s := grouptest.MustSession(t, n, nil)
	e, err := kv.Acquire(ctx, "locked", []byte("\xff\x00"), s.ID())
	grouptest.Must(t, err)
	client := grouptest.Dial(t, &conclave.ClientConfig{}, n)
	for _, kv := range []*conclave.KV{kv, client.KV()} {
		all, err := grouptest.Collect(kv.Browse(ctx, "", ""))
		grouptest.Must(t, err)
		keys, err := kv.Keys(ctx, "", "")
		grouptest.Must(t, err)
		if got := names(t, all, nil, func(k conclave.KeyInfo) string { return k.Key }); !slices.Equal(got, keys) {
			t.Errorf("%d keys, want %d: %q", len(got), len(keys), got)
		}
		top, err := grouptest.Collect(kv.Browse(ctx, "", "/", conclave.Stale()))
		grouptest.Must(t, err)
		if len(top) != 3 || top[1].Size != 1000 || string(top[1].Value) != long[:256] || top[0].Session != s.ID() ||
			string(top[0].Value) != "\xff\x00" || top[0].ModifyIndex != e.ModifyIndex || top[2].Key != "many/" || !top[2].Folder || top[0].Folder {
			t.Errorf("%+v", top)
		}
		rest, err := grouptest.Collect(kv.Browse(ctx, "many/", "/", conclave.After("many/297")))
		if got := names(t, rest, err, func(k conclave.KeyInfo) string { return k.Key }); !slices.Equal(got, []string{"many/298", "many/299"}) {
			t.Errorf("after a key: %q", got)
		}
		if _, err := grouptest.Collect(kv.Browse(ctx, "\xff", "")); !errors.Is(err, conclave.ErrInvalid) {
			t.Errorf("a prefix that is not UTF-8: %v", err)
		}
	}
}

// A member and a client know the group's name, stated or not.
func TestStatus_Group(t *testing.T) {
	for name, want := range map[string]string{"": "conclave", "orders": "orders"} {
		n, err := conclave.Open(t.Context(), &conclave.Config{Group: name, HeartbeatInterval: 10 * time.Millisecond})
		grouptest.Must(t, err)
		t.Cleanup(func() { grouptest.Kill(n) })
		s, err := grouptest.Dial(t, &conclave.ClientConfig{Group: name}, n).Status(t.Context())
		grouptest.Must(t, err)
		if got := n.Status().Group; got != want || s.Group != want {
			t.Errorf("%q at the member, %q at a client, want %q", got, s.Group, want)
		}
	}
}
