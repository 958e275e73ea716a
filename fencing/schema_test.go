package fencing_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/fencing"
)

// The statements run against real servers in the module contrib/sqltest.
func TestSchema_NamesTheTable(t *testing.T) {
	for d, quoted := range map[fencing.Dialect]string{
		fencing.PostgreSQL: `"app"."fences"`, fencing.MySQL: "`app`.`fences`", fencing.SQLite: `"app"."fences"`,
	} {
		if s := fencing.Schema(d); !strings.Contains(s, "conclave_fences") {
			t.Errorf("%s: %s", d, s)
		}
		if s, err := (fencing.SQL{Dialect: d, Table: "app.fences"}).Schema(); err != nil || !strings.HasPrefix(s, "CREATE TABLE IF NOT EXISTS "+quoted+" (") {
			t.Errorf("%s: %v, %s", d, err, s)
		}
		for _, table := range []string{"Fences", "a b", "a;--", `a"b`, "a`b", "a.b.c", "a.", "ä", "1a", strings.Repeat("a", 64), "a\n"} {
			if s, err := (fencing.SQL{Dialect: d, Table: table}).Schema(); !errors.Is(err, conclave.ErrInvalid) || s != "" {
				t.Errorf("%s: table %q: %v, %s", d, table, err, s)
			}
		}
	}
	for _, d := range []fencing.Dialect{0, 4, -1} {
		if s := fencing.Schema(d); s != "" || d.String() != "unknown" {
			t.Errorf("dialect %d: %s", d, s)
		}
	}
}
