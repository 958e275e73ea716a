package machine

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// browse returns what all pages list.
func browse(m *Machine, q KeyPageQuery) (all []KeyView) {
	for {
		page := Ask[[]KeyView](m, q)
		if len(page) == 0 {
			return all
		}
		all, q.After = append(all, page...), page[len(page)-1].Key
	}
}

// Pages of any size list the same keys and folders as KeyNamesQuery, each once, wherever a page ends.
func TestKeyPage_ListsAsKeyNames(t *testing.T) {
	d, random := newDriver(t), rand.New(rand.NewPCG(1, 2))
	alphabet := []string{"a", "b", "/", "//", "\u0000b", "\U0010ffff", "é"}
	for range 300 {
		var key strings.Builder
		for range 1 + random.IntN(5) {
			key.WriteString(alphabet[random.IntN(len(alphabet))])
		}
		if name := key.String(); !strings.Contains(name, "\x00") {
			d.do(&wire.Command{Op: &wire.Command_Write{Write: &wire.Write{Ops: []*wire.KeyOp{{Kind: wire.KeyOp_PUT, Key: name, Value: []byte(name)}}}}})
		}
	}
	for _, prefix := range []string{"", "a", "a/", "/", "//", "b\U0010ffff", "none"} {
		for _, separator := range []string{"", "/", "//", "é", "\U0010ffff"} {
			want := Ask[[]string](d.m, KeyNamesQuery{prefix, separator})
			for _, limit := range []int{1, 2, 7, 0} {
				var got []string
				for _, v := range browse(d.m, KeyPageQuery{Prefix: prefix, Separator: separator, Limit: limit}) {
					got = append(got, v.Key)
					if e := keyOf(d.m, v.Key); !v.Folder && (e == nil || string(v.Value) != v.Key || v.Size != len(v.Key) || v.ModifyIndex != e.ModifyIndex) {
						t.Errorf("%q is listed as %+v", v.Key, v)
					}
				}
				if !slices.Equal(got, want) {
					t.Fatalf("prefix %q, separator %q, pages of %d:\n%q, want\n%q", prefix, separator, limit, got, want)
				}
			}
		}
	}
}

// A key that an ended session has not released yet is listed as it will be.
func TestKeyPage_EndedSession(t *testing.T) {
	d := newDriver(t)
	d.line(wire.Code_OK, "open s ttl=1h")
	d.line(wire.Code_OK, "open t ttl=1h delete")
	for i := range 3 {
		d.line(wire.Code_OK, "write acquire kept/%d v session=s", i)
		d.line(wire.Code_OK, "write acquire deleted/%d v session=t", i)
	}
	if v := browse(d.m, KeyPageQuery{Prefix: "kept/"}); len(v) != 3 || v[0].Session != makeID("s") {
		t.Errorf("locked keys: %+v", v)
	}
	d.m.split = 1
	d.line(wire.Code_OK, "close s")
	d.line(wire.Code_OK, "close t")
	var got []string // the folder of the keys that are deleted with their session is none
	for _, v := range browse(d.m, KeyPageQuery{Separator: "/"}) {
		got = append(got, fmt.Sprint(v.Key, v.Folder))
	}
	if want := []string{"kept/true"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if v := browse(d.m, KeyPageQuery{Prefix: "kept/"}); len(v) != 3 || !v[2].Session.IsZero() {
		t.Errorf("released keys: %+v", v)
	}
}

// Of a long value the beginning is listed, with its size.
func TestKeyPage_CutsValues(t *testing.T) {
	d := newDriver(t)
	d.line(wire.Code_OK, "write put k %s", strings.Repeat("x", shownBytes+1))
	v := browse(d.m, KeyPageQuery{})
	if len(v) != 1 || len(v[0].Value) != shownBytes || v[0].Size != shownBytes+1 {
		t.Errorf("%+v", v)
	}
}
