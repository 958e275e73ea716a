package conclave_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

func FuzzParseSequencer(f *testing.F) {
	id := "01234567-89ab-cdef-0123-456789abcdef"
	f.Add(id + ":1:key")
	f.Add(id + ":18446744073709551615:a:b:c")
	f.Add(id + ":01:key")
	f.Add("::")
	// Inputs that fuzzing once found new.
	for _, s := range []string{
		"000ꮈ\xe9\x900\x87",
		"\x93\x93\x93\x93\x93\x93\x93\x93\x93\x93\x80\x93\x93\x93\x93\x93\x93\x93\x93\x93\x93\x93\x93\x93\x93\x93\x93\x93\x93\x93\xd70\x83",
		"01234567-89ab-cdef-0123-456789abcdef:184467:40737095516154a:b:c",
		"00000000-0000-0000-0000-000000000000:000A",
		"\x00\x00000000P0000\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4\xf4",
		"\x12\x12\x12\x12\x02\x12\x12\x12",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		q, err := conclave.ParseSequencer(s)
		if err != nil {
			if q != (conclave.Sequencer{}) {
				t.Fatalf("parsing %q returned %+v with %v", s, q, err)
			}
			return
		}
		if !strings.EqualFold(q.String(), s) {
			t.Fatalf("%q was parsed as %q", s, q)
		}
		if again, err := conclave.ParseSequencer(q.String()); err != nil || again != q {
			t.Fatalf("%q was parsed as %+v, %v", q, again, err)
		}
	})
}

func TestSequencer_Parse(t *testing.T) {
	id := "01234567-89ab-cdef-0123-456789abcdef"
	session, err := conclave.ParseSessionID(strings.ToUpper(id))
	if err != nil || session.String() != id {
		t.Fatal(session, err)
	}
	want := conclave.Sequencer{Key: "a:b/c", LockIndex: 7, Session: session}
	got, err := conclave.ParseSequencer(id + ":7:a:b/c")
	if err != nil || got != want {
		t.Fatal(got, err)
	}
	for _, bad := range []string{
		"", "::", id, id + ":", id + ":1", id + ":1:", id + ":0:k", id + ":-1:k", id + ":+1:k", id + ":01:k",
		id + ":18446744073709551616:k", id + ":1:k\x00", id + ":1:\xff", ":1:k", "x" + id + ":1:k",
		strings.ReplaceAll(id, "-", "") + ":1:k", strings.Replace(id, "0", "g", 1) + ":1:k",
		strings.Replace(id, "-", "", 1) + "-:1:k", "00000000-0000-0000-0000-000000000000:1:k",
	} {
		_, err := conclave.ParseSequencer(bad)
		grouptest.WantError(t, err, conclave.ErrInvalid)
	}
	_, err = conclave.ParseSequencer(id + ":1:" + strings.Repeat("k", 513))
	grouptest.WantError(t, err, conclave.ErrTooLarge)
}

func TestSequencer_MarshalsAsText(t *testing.T) {
	want := conclave.Sequencer{Key: "k", LockIndex: 1, Session: conclave.SessionID{1}}
	text, err := json.Marshal(want)
	var got conclave.Sequencer
	if err == nil {
		err = json.Unmarshal(text, &got)
	}
	if err != nil || got != want {
		t.Fatalf("%s became %+v, %v", text, got, err)
	}
}
