package main

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/display"
)

// one prints one value: as JSON, or as the text that table writes.
func (p *program) one(value any, table func(w *tabwriter.Writer)) error {
	if p.format == "json" {
		e := newEncoder(p.stdout)
		e.SetIndent("", "  ")
		return e.Encode(value)
	}
	w := p.tabs()
	table(w)
	return w.Flush()
}

// atTerminal reports whether a person reads standard output.
func (p *program) atTerminal() bool {
	f, ok := p.stdout.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// newEncoder returns an encoder whose output cannot control a terminal.
func newEncoder(w io.Writer) *json.Encoder { return json.NewEncoder(escaping{w}) }

// escaping escapes JSON texts. Each write is a whole one.
type escaping struct{ w io.Writer }

func (e escaping) Write(text []byte) (int, error) {
	if _, err := e.w.Write(display.JSON(text)); err != nil {
		return 0, err
	}
	return len(text), nil
}

func (p *program) tabs() *tabwriter.Writer { return tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0) }

// rowsAtOnce are aligned with each other. A listing may be long and is printed as it comes.
const rowsAtOnce = 500

// many prints a sequence: as one JSON value a line, or as a table.
func many[T any](p *program, limit int, columns string, values iter.Seq2[T, error], show func(T) (value any, row []string)) error {
	if limit < 0 {
		return usagef("--limit %d: want 0, for all, or more", limit)
	}
	w, lines := p.tabs(), newEncoder(p.stdout)
	if p.format == "table" {
		fmt.Fprintln(w, strings.ReplaceAll(columns, " ", "\t"))
	}
	n := 0
	for v, err := range values {
		if err != nil {
			_ = w.Flush() // err is the error to report
			return err
		}
		if limit > 0 && n == limit {
			_ = w.Flush()
			p.tell(fmt.Sprintf("conclave: only the first %d are shown: set --limit, 0 for all", limit))
			return nil
		}
		n++
		value, row := show(v)
		if p.format == "json" {
			if err := lines.Encode(value); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
		if n%rowsAtOnce == 0 {
			if err := w.Flush(); err != nil {
				return err
			}
		}
	}
	return w.Flush()
}

// name prints what another process has named. An empty cell would look like a missing one.
func name(s string) string {
	if s == "" {
		return "-"
	}
	return display.Name(s)
}

// span prints a time, to the precision that people need.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "?"
	case d == 0:
		return "0s"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func ttlText(d time.Duration) string {
	if d == conclave.NoTTL {
		return "none"
	}
	return span(d)
}

// seconds is a time in JSON; nil: none, or not known.
func seconds(d time.Duration) *float64 {
	if d < 0 {
		return nil
	}
	s := d.Seconds()
	return &s
}
