package main

import (
	"errors"
	"io"
	"strings"

	"golang.org/x/exp/trace"
)

// history is what a trace tells of each goroutine.
type history struct {
	spans  map[trace.GoID][]span
	roles  map[trace.GoID]string
	writes map[string][]write    // to each connection
	reads  map[trace.GoID]string // the connection from which a goroutine reads
	calls  []traced
}

// span is a stretch of time in which a goroutine was in one state.
type span struct {
	state trace.GoState
	from  trace.Time
	woken bool       // it waited before
	by    trace.GoID // of a woken one: what woke it; none: the network poller or a timer
}

// write is one to a connection.
type write struct {
	by         trace.GoID
	begin, end trace.Time
}

// traced is a call: a region of its caller.
type traced struct {
	kind       string
	caller     trace.GoID
	begin, end trace.Time
}

func readHistory(r io.Reader) (*history, error) {
	reader, err := trace.NewReader(r)
	if err != nil {
		return nil, err
	}
	h := &history{
		spans: make(map[trace.GoID][]span), roles: make(map[trace.GoID]string),
		writes: make(map[string][]write), reads: make(map[trace.GoID]string),
	}
	begun := make(map[trace.GoID]trace.Time)
	for {
		e, err := reader.ReadEvent()
		if errors.Is(err, io.EOF) {
			return h, nil
		}
		if err != nil {
			return nil, err
		}
		switch e.Kind() {
		case trace.EventRegionBegin:
			begun[e.Goroutine()] = e.Time()
		case trace.EventRegionEnd:
			if at, ok := begun[e.Goroutine()]; ok {
				h.calls = append(h.calls, traced{e.Region().Type, e.Goroutine(), at, e.Time()})
			}
		case trace.EventStateTransition:
			h.transition(e)
		case trace.EventLog:
			h.connection(e)
		}
	}
}

func (h *history) transition(e trace.Event) {
	t := e.StateTransition()
	if t.Resource.Kind != trace.ResourceGoroutine {
		return
	}
	g := t.Resource.Goroutine()
	if h.roles[g] == "" {
		h.roles[g] = role(t.Stack)
	}
	from, to := t.Goroutine()
	s := span{state: to, from: e.Time(), by: trace.NoGoroutine}
	if to == trace.GoRunnable && (from == trace.GoWaiting || from == trace.GoNotExist) {
		s.woken, s.by = true, e.Goroutine()
	}
	h.spans[g] = append(h.spans[g], s)
}

func (h *history) connection(e trace.Event) {
	c := e.Log().Message
	switch all := h.writes[c]; e.Log().Category {
	case writing:
		h.writes[c] = append(all, write{by: e.Goroutine(), begin: e.Time()})
	case wrote:
		if n := len(all); n > 0 { // else it began before the trace
			all[n-1].end = e.Time()
		}
	case read:
		h.reads[e.Goroutine()] = c
	}
}

// roles are the goroutines on the way of a call, by a function of their stacks.
var roles = []struct{ function, name string }{
	{"cluster/replica.(*Replica).loop", "loop"},
	{"storage.(*Store).loop", "storage"},
	{"record.(*LogWriter).flushLoop", "Pebble's log writer"},
	{"transport.(*peer).connectOnce", "writer to a peer"},
	{"transport.(*Transport).serve", "reader of a peer"},
	{"appcall.(*call", "connection of the program"}, // which counts: package net's needs no goroutine
	{".followCalls", "caller"},
}

func role(s trace.Stack) string {
	for _, r := range roles {
		if passes(s, r.function) {
			return r.name
		}
	}
	return ""
}

func passes(s trace.Stack, function string) bool {
	for f := range s.Frames() {
		if strings.Contains(f.Func, function) {
			return true
		}
	}
	return false
}
