package memberlog

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

func TestHandler_NamesMembers(t *testing.T) {
	for _, c := range []struct {
		name string
		args []any
		want string
	}{
		{"member", []any{"member", wire.MemberID(1), "alive", true}, "member=0000000000000001 name=anna alive=true"},
		{"another key", []any{"leader", wire.MemberID(2), "term", 3}, `leader=0000000000000002 leaderName="ben two" term=3`},
		{"two members", []any{"member", wire.MemberID(1), "by", wire.MemberID(2)}, `member=0000000000000001 name=anna by=0000000000000002 byName="ben two"`},
		{"several", []any{"voters", wire.MemberIDs([]uint64{1, 2, 3})}, `voters="0000000000000001 0000000000000002 0000000000000003" votersNames="anna ben two ?"`},
		{"several unknown", []any{"voters", wire.MemberIDs([]uint64{3})}, "voters=0000000000000003"},
		{"none", []any{"leader", wire.MemberID(0), "name", "x"}, "leader=none name=x"},
		{"unknown", []any{"member", wire.MemberID(3)}, "member=0000000000000003"},
		{"the line has the name", []any{"member", wire.MemberID(1), "name", "new"}, "member=0000000000000001 name=new"},
		{"no member", []any{"error", errors.New("0000000000000001"), "bytes", 7}, "error=0000000000000001 bytes=7"},
		{"a change with the name", []any{"change", "adding anna (0000000000000001)"}, `change="adding anna (0000000000000001)"`},
		{"a change", []any{"change", "promoting [0000000000000001 0000000000000003]"}, `change="promoting [anna (0000000000000001) 0000000000000003]"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			log, names := New(slog.New(slog.NewTextHandler(&out, nil)))
			names.Set(1, "anna")
			names.Set(2, "ben two")
			names.Set(3, "")
			log.Info("m", c.args...)
			_, got, _ := strings.Cut(strings.TrimSpace(out.String()), "msg=m ")
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			out.Reset()
			log.With(c.args...).WithGroup("g").Info("m")
			if got := out.String(); !strings.Contains(got, c.want) {
				t.Errorf("with attributes of the logger: %s", got)
			}
		})
	}
}

// A JSON handler prints an ID as the others do, and as Status does.
func TestHandler_JSON(t *testing.T) {
	var out bytes.Buffer
	log, names := New(slog.New(slog.NewJSONHandler(&out, nil)))
	names.Set(10, "anna")
	log.Info("m", "leader", wire.MemberID(10))
	if got := out.String(); !strings.Contains(got, `"leader":"000000000000000a","leaderName":"anna"`) {
		t.Error(got)
	}
}

// The table is bounded, and forgets the members that came first.
func TestNames_Bounded(t *testing.T) {
	_, names := New(slog.New(slog.DiscardHandler))
	for member := uint64(1); member <= maxNames+1; member++ {
		names.Set(member, "first")
		names.Set(member, "later")
	}
	if names.Of(1) != "" || names.Of(2) != "later" || names.Of(maxNames+1) != "later" || len(names.byID) != maxNames {
		t.Errorf("%d names, the first is %q", len(names.byID), names.Of(1))
	}
}

// Lines of the raft library are not constant, and have IDs without leading zeros.
func TestHandler_RaftLines(t *testing.T) {
	var out bytes.Buffer
	log, names := New(slog.New(slog.NewTextHandler(&out, nil)))
	names.Set(0xabcdef01234567, "an\x1bna")
	log.Warn("abcdef01234567 [term: 1] ignored a message from 1234567890abcdef", "from", "raft")
	log.Warn("abcdef01234567", "from", "memberlist")
	if got := out.String(); !strings.Contains(got, `(abcdef01234567) [term: 1] ignored a message from 1234567890abcdef"`) || strings.Contains(got, "\x1b") || !strings.Contains(got, "msg=abcdef01234567 ") {
		t.Error(got)
	}
}
