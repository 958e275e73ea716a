// Package memberlog adds the names of members to log lines: operators know a member by its
// name, and the library by its ID.
//
// An attribute with a member's ID is followed by one with its name: "name" after "member", and
// "leaderName" after "leader". Of several members, as "voters", it is "votersNames". A line
// that states the name itself, of a process that is no member yet, is left as it is.
package memberlog

import (
	"cmp"
	"context"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/conclave-go/conclave/internal/display"
	"github.com/conclave-go/conclave/internal/wire"
)

// maxNames bounds the memory for names of former members.
const maxNames = 1024

// Names has the names of the members that this process has known, removed ones included. It is
// safe for concurrent use.
type Names struct {
	mu     sync.Mutex
	byID   map[uint64]string // guarded by mu
	former []uint64          // guarded by mu; in the order of their first names
}

// New returns a logger that adds names to the lines of another one, and the table of these names.
func New(to *slog.Logger) (*slog.Logger, *Names) {
	n := &Names{byID: make(map[uint64]string)}
	return slog.New(&handler{to: to.Handler(), names: n}), n
}

// Set sets the name of a member.
func (n *Names) Set(member uint64, name string) {
	if name == "" {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, known := n.byID[member]; !known {
		if n.former = append(n.former, member); len(n.former) > maxNames {
			delete(n.byID, n.former[0])
			n.former = n.former[1:]
		}
	}
	n.byID[member] = name
}

// Of returns the name of a member; "": it is not known.
func (n *Names) Of(member uint64) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.byID[member]
}

// id matches what is printed of a member's ID; by raft without leading zeros. In parentheses it follows a name.
var id = regexp.MustCompile(`\(?\b[0-9a-f]{12,16}\b`)

// Text returns a text in which the name of each member precedes its ID. Nothing in a name can control a terminal.
func (n *Names) Text(text string) string {
	return id.ReplaceAllStringFunc(text, func(digits string) string {
		member, err := strconv.ParseUint(digits, 16, 64)
		if name := n.Of(member); err == nil && name != "" {
			return display.Name(name) + " (" + digits + ")"
		}
		return digits
	})
}

// handler is a slog.Handler that adds names.
type handler struct {
	to    slog.Handler
	names *Names
}

// Enabled reports what the other handler does.
func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.to.Enabled(ctx, level)
}

// Handle adds the names to a record.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	attrs := make([]slog.Attr, 0, r.NumAttrs())
	r.Attrs(func(a slog.Attr) bool {
		if attrs = append(attrs, a); a.Key == fromKey && a.Value.Kind() == slog.KindString && a.Value.String() == "raft" {
			r.Message = h.names.Text(r.Message) // which is not constant
		}
		return true
	})
	named := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	named.AddAttrs(h.named(attrs)...)
	return h.to.Handle(ctx, named)
}

// WithAttrs returns a handler whose lines have the attributes, with the names of now.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{to: h.to.WithAttrs(h.named(attrs)), names: h.names}
}

// WithGroup returns a handler whose attributes are in the group.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{to: h.to.WithGroup(name), names: h.names}
}

// named returns attributes with those of the names that they lack.
func (h *handler) named(attrs []slog.Attr) (named []slog.Attr) {
	stated := make(map[string]bool, len(attrs))
	for _, a := range attrs {
		stated[a.Key] = true
	}
	for _, a := range attrs {
		named = append(named, h.of(a, stated)...)
	}
	return named
}

// of returns an attribute, and the one with the names unless it is stated. The text of a
// membership change names members, too.
func (h *handler) of(a slog.Attr, stated map[string]bool) []slog.Attr {
	if a.Value.Kind() == slog.KindString && a.Key == changeKey {
		return []slog.Attr{slog.String(a.Key, h.names.Text(a.Value.String()))}
	}
	switch v := a.Value.Any().(type) {
	case wire.MemberID:
		if v == 0 {
			return []slog.Attr{slog.String(a.Key, "none")}
		}
		attrs := []slog.Attr{slog.String(a.Key, v.String())} // a JSON handler would print a number
		key := a.Key + "Name"
		if a.Key == memberKey {
			key = "name"
		}
		if name := h.names.Of(uint64(v)); name != "" && !stated[key] {
			attrs = append(attrs, slog.String(key, name))
		}
		return attrs
	case []wire.MemberID:
		ids, names, known := make([]string, 0, len(v)), make([]string, 0, len(v)), false
		for _, member := range v {
			name := h.names.Of(uint64(member))
			ids, names, known = append(ids, member.String()), append(names, cmp.Or(name, "?")), known || name != ""
		}
		attrs := []slog.Attr{slog.String(a.Key, strings.Join(ids, " "))}
		if known {
			attrs = append(attrs, slog.String(a.Key+"Names", strings.Join(names, " ")))
		}
		return attrs
	}
	return []slog.Attr{a}
}

// The keys with a rule of their own.
const (
	memberKey = "member"
	changeKey = "change"
	fromKey   = "from"
)
