//go:build unix

package sqltest

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/conclave-go/conclave"
)

// alike are names that some collation, padding or encoding takes for equal, or that hurt an
// unquoted statement.
var alike = []string{
	"a", "A", "a ", "a  ", " a", "a\t", "a\n", "á", "a\u0301", "ａ", "ª", "ä", "ae", "æ",
	"ss", "ß", "ẞ", "i", "I", "İ", "ı", "\u200b", "a\u200b", "\u00ad", "😀", "😁", "\U0010ffff", "\ufffd", "\ufeffa",
	"'", "''", "\\", "\\'", "%", "_", "\"", "`", "--", "?", "$1", `\x61`, "1", "01", "1.0",
	"'; DROP TABLE conclave_fences; --", "\x01", "\x7f", "\x1a",
	strings.Repeat("x", 511), strings.Repeat("x", 512), strings.Repeat("x", 511) + "y", strings.Repeat("😀", 128), strings.Repeat(" ", 512),
}

// Each name has a row of its own.
func (b *database) names(t *testing.T) {
	for i, name := range alike {
		if err := b.write(t.Context(), name, conclave.Fence(1000+i)); err != nil {
			t.Fatalf("%.20q: %v", name, err)
		}
	}
	for i, name := range alike {
		f := conclave.Fence(1000 + i)
		if largest, err := b.Largest(t.Context(), b.db, name); err != nil || largest != f {
			t.Errorf("%.20q has fence %v, %v, want %v", name, largest, err, f)
		}
		refused(t, b.write(t.Context(), name, f-1), f-1, f)
	}
	for _, name := range []string{"", strings.Repeat("x", 513), "a\x00", "a\xff", "\xed\xa0\x80"} {
		if err := b.write(t.Context(), name, 1); !errors.Is(err, conclave.ErrInvalid) {
			t.Errorf("%.20q: got %v, want ErrInvalid", name, err)
		}
		if _, err := b.Largest(t.Context(), b.db, name); !errors.Is(err, conclave.ErrInvalid) {
			t.Errorf("%.20q: got %v, want ErrInvalid", name, err)
		}
	}
}

// Two tables know nothing of each other, also where a table's name is a word of SQL.
func (b *database) table(t *testing.T) {
	for i, name := range []string{"select", "fences_2", "_x"} {
		other := *b
		other.Table = name
		other.create(t)
		if err := other.write(t.Context(), "table", conclave.Fence(i+1)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if largest, err := b.Largest(t.Context(), b.db, "table"); largest != 0 || err != nil {
		t.Errorf("the default table has %v, %v", largest, err)
	}
	for _, name := range []string{"Fences", "a b", "a;b", "a\"b", "a`b", "a.b.c", ".a", "a.", "1a", "ä", strings.Repeat("a", 64), "x\n"} {
		other := *b
		other.Table = name
		if err := other.write(t.Context(), "table", 1); !errors.Is(err, conclave.ErrInvalid) {
			t.Errorf("%q: got %v, want ErrInvalid", name, err)
		}
	}
}

// What f has written is undone with its error, and so is the raised fence.
func (b *database) rollback(t *testing.T) {
	b.exec(t, "CREATE TABLE notes (note INTEGER)")
	ctx, broken := conclave.ContextWithFence(t.Context(), 5), errors.New("broken")
	insert := func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO notes VALUES (1)")
		return err
	}
	if err := b.Tx(ctx, b.db, "rollback", func(tx *sql.Tx) error { return errors.Join(insert(tx), broken) }); !errors.Is(err, broken) {
		t.Errorf("got %v, want the function's error", err)
	}
	func() {
		defer func() {
			if r := recover(); r != "after <nil>" {
				t.Errorf("recovered %v", r)
			}
		}()
		err := b.Tx(ctx, b.db, "rollback", func(tx *sql.Tx) error { panic(fmt.Sprint("after ", insert(tx))) })
		t.Errorf("a panic ended in %v", err)
	}()
	if largest, err := b.Largest(ctx, b.db, "rollback"); largest != 0 || err != nil {
		t.Errorf("fence %v, %v after a rollback", largest, err)
	}
	if err := b.Tx(ctx, b.db, "rollback", insert); err != nil {
		t.Fatal(err)
	}
	var notes int
	if err := b.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM notes").Scan(&notes); err != nil || notes != 1 {
		t.Errorf("%d notes, %v, want 1", notes, err)
	}
	b.exec(t, "DROP TABLE notes")
}

// SQLite rolls back by itself. Its COMMIT fails then, unlike that of MySQL.
func (b *database) rollbackInF(t *testing.T) {
	b.exec(t, "CREATE TABLE notes (note INTEGER PRIMARY KEY)")
	ctx := conclave.ContextWithFence(t.Context(), 1)
	err := b.Tx(ctx, b.db, "rollback in f", func(tx *sql.Tx) error {
		for range 2 {
			_, _ = tx.ExecContext(ctx, "INSERT OR ROLLBACK INTO notes VALUES (1)") // the second one fails
		}
		return nil
	})
	if err == nil {
		t.Error("Tx does not report that its transaction was rolled back")
	}
	b.exec(t, "DROP TABLE notes")
}
