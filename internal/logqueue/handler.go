package logqueue

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

const (
	attrBytes = 128         // that an attribute counts besides its texts
	askAgain  = time.Second // between two questions whether a level is enabled by now
)

// handler is the slog.Handler of this module's own Logger. No method of it calls a function
// of the application.
type handler struct {
	queue *Queue
	to    *target
}

// Enabled reports what the application's handler has said last about the level. A level that
// was disabled is asked about again, in the background, when it is used.
func (h *handler) Enabled(_ context.Context, level slog.Level) bool {
	if h.to.off.Load()&bit(level) == 0 {
		return true
	}
	now, asked := int64(time.Since(h.queue.began)), h.to.asked.Load()
	if now-asked >= int64(askAgain) && h.to.asked.CompareAndSwap(asked, now) {
		h.queue.put(line{to: h.to, record: slog.Record{Level: level}, asks: true})
	}
	return false
}

// Handle queues a record. The values of its attributes must not change any more.
func (h *handler) Handle(_ context.Context, r slog.Record) error {
	size := attrBytes + len(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		size += sizeOf(a)
		return true
	})
	h.queue.put(line{to: h.to, record: r.Clone(), size: size})
	return nil
}

// WithAttrs returns a handler whose lines have the attributes.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.queue, &target{parent: h.to, attrs: attrs}}
}

// WithGroup returns a handler whose attributes are in the group.
func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return &handler{h.queue, &target{parent: h.to, group: name}}
}

// sizeOf is about the memory that an attribute takes. It looks at no value of another type
// than slog's: that might call a function of the application.
func sizeOf(a slog.Attr) int {
	size := attrBytes + len(a.Key)
	switch a.Value.Kind() {
	case slog.KindString:
		size += len(a.Value.String())
	case slog.KindGroup:
		for _, member := range a.Value.Group() {
			size += sizeOf(member)
		}
	}
	return size
}

// target is a handler of the application, or one that is derived from it when it is needed.
type target struct {
	parent *target     // nil: it is the application's own
	attrs  []slog.Attr // to derive with; nil: group
	group  string

	handler slog.Handler // owned by the goroutine that drains; nil: not derived yet

	off   atomic.Uint32 // a bit for each level that is disabled, see bit
	asked atomic.Int64  // when a level was asked about last, since the Queue's begin
}

func (t *target) root() *target {
	for t.parent != nil {
		t = t.parent
	}
	return t
}

// derived returns the application's handler. It is called on the goroutine that drains.
func (t *target) derived() slog.Handler {
	switch {
	case t.handler != nil:
	case t.attrs != nil:
		t.handler = t.parent.derived().WithAttrs(t.attrs)
	default:
		t.handler = t.parent.derived().WithGroup(t.group)
	}
	return t.handler
}

// call has the application's handler handle a line, if its level is enabled, and notes whether
// it is. Like package slog it ignores the handler's error.
func (t *target) call(l *line) {
	h := t.derived()
	enabled := h.Enabled(context.Background(), l.record.Level)
	if enabled {
		t.off.And(^bit(l.record.Level))
	} else {
		t.off.Or(bit(l.record.Level))
	}
	if enabled && !l.asks {
		_ = h.Handle(context.Background(), l.record)
	}
}

// bit stands for a level: this module uses the four of package slog.
func bit(level slog.Level) uint32 {
	const step = slog.LevelInfo - slog.LevelDebug
	level = max(slog.LevelDebug, min(slog.LevelError, level))
	return 1 << uint32((level-slog.LevelDebug)/step)
}

// describe returns the text of what a panic was called with.
func describe(panicked any) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("%T", panicked)
		}
	}()
	if panicked == nil {
		return "none: the handler ended its goroutine"
	}
	return fmt.Sprint(panicked)
}
