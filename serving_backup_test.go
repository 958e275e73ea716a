package conclave

import (
	"errors"
	"strings"
	"testing"
)

// The backups that clients read are shared by host, and by the clients of one host.
func TestBackups_Shared(t *testing.T) {
	for name, row := range map[string]struct{ reads, next, want string }{
		"places are free":                       {"a1 a1 a1", "a1", "a1 a1 a1 a1"},
		"one client has all":                    {"a1 a1 a1 a1", "a1", ""},
		"one client has all, another asks":      {"a1 a1 a1 a1", "a2", "a1 a1 a1 a2"},
		"and one of another host":               {"a1 a1 a1 a1", "b3", "a1 a1 a1 b3"},
		"the clients of one host have one each": {"a1 a2 a3 a4", "a5", ""},
		"and one of another host asks":          {"a1 a2 a3 a4", "b5", "a1 a2 a3 b5"},
		"hosts have as many":                    {"a1 b1 a1 b1", "a1", ""},
		"hosts have as many, a third asks":      {"a1 b1 a1 b1", "c1", "a1 b1 a1 c1"},
		"the host with fewer asks for a second": {"a1 a2 a3 b1", "b2", "a1 a2 b1 b2"},
	} {
		var b backups
		ended := 0
		read := func(who string) bool {
			return b.begin(&reading{client: uint64(who[1]), host: who[:1], end: func(err error) {
				if ended++; !errors.Is(err, ErrBusy) {
					t.Errorf("%s: %v", name, err)
				}
			}})
		}
		for who := range strings.FieldsSeq(row.reads) {
			read(who)
		}
		var got []string
		if read(row.next) {
			for _, r := range b.reading {
				got = append(got, r.host+string(rune(r.client)))
			}
		}
		if strings.Join(got, " ") != row.want || ended != len(strings.Fields(row.reads))+min(1, len(got))-len(b.reading) {
			t.Errorf("%s: %q, want %q; %d were ended", name, got, row.want, ended)
		}
	}
}
