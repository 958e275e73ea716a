package conclave_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

func TestParseFence_RoundTrip(t *testing.T) {
	for _, f := range []conclave.Fence{1, 47, 1<<48 - 1, 1<<48 | 1, 1<<64 - 1, 3 << 48} {
		got, err := conclave.ParseFence(f.String())
		if err != nil || got != f {
			t.Errorf("%d printed as %q and parsed as %d: %v", uint64(f), f, uint64(got), err)
		}
	}
}

func TestParseFence_Invalid(t *testing.T) {
	for _, s := range []string{"", "0", "0:0", "0:1", "1:", ":1", "-1", "+1", "01", "1:01", "65536:1", "281474976710656", "1:281474976710656", "1:2:3", " 1", "x"} {
		f, err := conclave.ParseFence(s)
		grouptest.WantError(t, err, conclave.ErrInvalid)
		if f != 0 {
			t.Errorf("%q parsed as %v", s, f)
		}
	}
}

// What a program logs or stores can be read back.
func TestIDs_MarshalAsText(t *testing.T) {
	type record struct {
		Fence   conclave.Fence
		None    conclave.Fence
		Session conclave.SessionID
		Node    conclave.MemberID
		Role    conclave.Role
	}
	want := record{Fence: 1<<48 | 7, Session: conclave.SessionID{1, 2, 3}, Node: 0x231c, Role: conclave.Standby}
	data, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	const text = `{"Fence":"1:7","None":"0","Session":"01020300-0000-0000-0000-000000000000","Node":"000000000000231c","Role":"standby"}`
	if string(data) != text {
		t.Errorf("got %s, want %s", data, text)
	}
	var got record
	if err := json.Unmarshal(data, &got); err != nil || got != want {
		t.Errorf("got %+v, want %+v: %v", got, want, err)
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "member", want.Node, "session", want.Session, "fence", want.Fence, "role", want.Role)
	for _, part := range []string{`"000000000000231c"`, `"01020300-0000-`, `"1:7"`, `"standby"`} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("the log has no %s: %s", part, &log)
		}
	}
}

func TestIDs_UnmarshalInvalid(t *testing.T) {
	var record struct {
		Fence   conclave.Fence
		Session conclave.SessionID
		Node    conclave.MemberID
		Role    conclave.Role
	}
	for _, text := range []string{`{"Fence":"x"}`, `{"Session":"x"}`, `{"Node":"231c"}`, `{"Node":"zzzzzzzzzzzzzzzz"}`, `{"Role":"observer"}`} {
		grouptest.WantError(t, json.Unmarshal([]byte(text), &record), conclave.ErrInvalid)
	}
}

func TestFenceFromContext(t *testing.T) {
	if f, ok := conclave.FenceFromContext(t.Context()); ok || f != 0 {
		t.Errorf("got %v from a context without a fence", f)
	}
	if f, ok := conclave.FenceFromContext(conclave.ContextWithFence(t.Context(), 7)); !ok || f != 7 {
		t.Errorf("got %v, want 7", f)
	}
}
